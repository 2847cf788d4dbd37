// SPDX-License-Identifier: Apache-2.0
//
// Phases of an operation, as places where a test may let a process die or be slow. With
// HFREDUCE_FAULT=kill:copy_in:37 the process kills itself when it enters copy_in for the 37th time;
// without the variable, and without a hook of a test, a phase costs one load and one branch.
#pragma once

#include <atomic>
#include <cstdint>

namespace hfreduce {

enum class Phase : std::uint8_t {
  kRendezvous,
  kCopyIn,
  kReduce,
  kCopyOut,
  kTreeUp,
  kTreeDown,
  kDestroy,
};
inline constexpr int kPhaseCount = 7;

const char* name_of(Phase phase);

// Called at every entry into a phase, on the thread that drives the operation.
using PhaseHook = void (*)(Phase phase);

namespace detail {
extern std::atomic<PhaseHook> phase_hook;  // null: none
}  // namespace detail

inline void enter_phase(Phase phase) {
  if (PhaseHook hook = detail::phase_hook.load(std::memory_order_relaxed)) hook(phase);
}

// For tests; null ends it. Other threads may still be in the old hook for a while.
void set_phase_hook(PhaseHook hook);
// Reads HFREDUCE_FAULT again; tests call it after setting the variable.
void reload_fault();

}  // namespace hfreduce
