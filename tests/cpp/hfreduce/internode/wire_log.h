// SPDX-License-Identifier: Apache-2.0
//
// WireLog: what one rank's group sends to other nodes and gets from them, in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "hfreduce/engine/communicator_impl.h"
#include "hfreduce/world.h"

namespace hfreduce {

class WireLog final : public PayloadObserver {
 public:
  struct Event {
    bool sent;  // or received
    int peer;   // rank
    std::uint64_t chunk;
    bool up;  // a partial; else a result
    std::uint64_t bytes;
  };

  void leaves(int to, const FrameHeader& header) override { add(true, to, header); }
  void has_arrived(const FrameHeader& header) override { add(false, header.rank, header); }

  std::vector<Event> events() {
    std::lock_guard lock(mu_);
    return events_;
  }
  // Waits until `wanted(events())`; false after half a minute.
  template <typename Wanted>
  bool wait_until(const Wanted& wanted) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return wanted(events_); });
  }

 private:
  void add(bool sent, int peer, const FrameHeader& header) {
    if (header.op.kind != OpKind::kAllreduce) return;
    std::lock_guard lock(mu_);
    // A transfer's slot is the chunk's number and the direction: see chunk_exchange.cc.
    events_.push_back({sent, peer, header.slot / 2, header.slot % 2 == 0, header.length});
    changed_.notify_all();
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Event> events_;
};

using WireLogs = std::vector<std::unique_ptr<WireLog>>;

inline WireLogs make_logs(const WorldShape& shape) {
  WireLogs logs;
  for (int rank = 0; rank < shape.size(); ++rank) logs.push_back(std::make_unique<WireLog>());
  return logs;
}

inline void observe(Communicator& comm, PayloadObserver* observer) {
  static_cast<CommunicatorImpl&>(comm).inbox().observe(observer);
}

struct UpAndDown {
  std::uint64_t up = 0;
  std::uint64_t down = 0;
};

// What was sent (or received), in partials and in results.
inline UpAndDown bytes_of(WireLog& log, bool sent) {
  UpAndDown bytes;
  for (const WireLog::Event& event : log.events()) {
    if (event.sent == sent) (event.up ? bytes.up : bytes.down) += event.bytes;
  }
  return bytes;
}

}  // namespace hfreduce
