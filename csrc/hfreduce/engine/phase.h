// SPDX-License-Identifier: Apache-2.0
//
// Phases of an operation, as places where a test may let a process die. With
// HFREDUCE_FAULT=kill:copy_in:37 the process kills itself when it enters copy_in for the 37th time;
// without the variable a phase costs one load and one branch.
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

namespace detail {
extern std::atomic<int> fatal_phase;  // -1: none
void entered_fatal_phase();
}  // namespace detail

inline void enter_phase(Phase phase) {
  if (detail::fatal_phase.load(std::memory_order_relaxed) == static_cast<int>(phase)) {
    detail::entered_fatal_phase();
  }
}

// Reads HFREDUCE_FAULT again; tests call it after setting the variable.
void reload_fault();

}  // namespace hfreduce
