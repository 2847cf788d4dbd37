// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/counters.h"

#include "hfreduce/communicator.h"

namespace hfreduce {

LiveCounters& live_counters() {
  static LiveCounters counters;
  return counters;
}

Counters counters() {
  const LiveCounters& now = live_counters();
  Counters out;
  out.operations = now.operations.load(std::memory_order_relaxed);
  out.shm_bytes_copied = now.shm_bytes_copied.load(std::memory_order_relaxed);
  out.net_bytes_sent = now.net_bytes_sent.load(std::memory_order_relaxed);
  out.net_bytes_received = now.net_bytes_received.load(std::memory_order_relaxed);
  out.net_frames_sent = now.net_frames_sent.load(std::memory_order_relaxed);
  out.arena_operations = now.arena_operations.load(std::memory_order_relaxed);
  return out;
}

}  // namespace hfreduce
