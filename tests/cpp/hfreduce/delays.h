// SPDX-License-Identifier: Apache-2.0
//
// RandomDelays: while it lives, every thread that drives operations sleeps now and then between
// their phases, so that ranks and their engines overtake each other as on a busy machine.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include "hfreduce/engine/phase.h"

namespace hfreduce {

class RandomDelays {
 public:
  explicit RandomDelays(std::uint64_t seed) {
    seed_ = seed;
    set_phase_hook(maybe_sleep);
  }
  ~RandomDelays() { set_phase_hook(nullptr); }
  RandomDelays(const RandomDelays&) = delete;
  RandomDelays& operator=(const RandomDelays&) = delete;

 private:
  static void maybe_sleep(Phase /*phase*/) {
    thread_local std::mt19937_64 random(seed_ + threads_.fetch_add(1));
    if (random() % 12 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
  }

  static inline std::atomic<std::uint64_t> seed_{0};
  static inline std::atomic<std::uint64_t> threads_{0};
};

}  // namespace hfreduce
