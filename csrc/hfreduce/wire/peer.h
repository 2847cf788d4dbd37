// SPDX-License-Identifier: Apache-2.0
//
// Peer: another process that this one talks to. All groups that both belong to share it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "hfreduce/options.h"
#include "hfreduce/shm/segment.h"
#include "hfreduce/wire/conn.h"
#include "hfreduce/wire/frame.h"
#include "hfreduce/wire/handshake.h"

namespace hfreduce {

// The first page of a process's segment; its arena follows.
struct ControlPage {
  Nonce proof;  // equal to the one announced through the store
  // The rest of the line stays empty: whoever polls `armed` must not share it.
  // 1: operations are pending and nobody polls for them: whoever writes shared memory that this
  // process may wait for must ring its doorbell.
  alignas(64) std::atomic<std::uint32_t> armed;
};
inline constexpr std::size_t kArenaOffset = 4096;
static_assert(sizeof(ControlPage) <= kArenaOffset);

struct Peer {
  ProcessId id{};
  // Ready for use once set, and never changed after; guarded by PeerTable's lock until then.
  std::shared_ptr<Conn> local;                              // Unix socket; a process of this host
  std::array<std::shared_ptr<Conn>, kMostStreams> streams;  // TCP, the first ones in use
  std::shared_ptr<Segment> segment;                         // its process segment, where local
  ff::UniqueFd doorbell;                                    // its eventfd, where local

  ControlPage* control() const { return reinterpret_cast<ControlPage*>(segment->data()); }
  // The connection for control frames and messages.
  Conn* main_conn() const { return local ? local.get() : streams.front().get(); }
  // Has it a connection for each of `count` streams, or a better one?
  bool is_connected(int count) const {
    return local ? segment != nullptr
                 : std::all_of(streams.begin(), streams.begin() + count,
                               [](const auto& stream) { return stream != nullptr; });
  }
  // Wakes the process if it sleeps with operations pending. To be called after a store that it may
  // wait for; the fence orders that store before the look at `armed`.
  void ring_if_armed() const;

  std::atomic<bool> lost{false};
  std::mutex mu;
  ff::Status why_lost;  // guarded by mu
};

}  // namespace hfreduce
