// SPDX-License-Identifier: Apache-2.0
//
// The counters behind hfreduce::counters(), of the whole process.
#pragma once

#include <atomic>
#include <cstdint>

namespace hfreduce {

struct LiveCounters {
  std::atomic<std::uint64_t> operations{0};
  std::atomic<std::uint64_t> shm_bytes_copied{0};
  std::atomic<std::uint64_t> net_bytes_sent{0};
  std::atomic<std::uint64_t> net_bytes_received{0};
  std::atomic<std::uint64_t> net_frames_sent{0};
  std::atomic<std::uint64_t> arena_operations{0};
};
LiveCounters& live_counters();

}  // namespace hfreduce
