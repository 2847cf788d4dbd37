// SPDX-License-Identifier: Apache-2.0
//
// Engine: what all communicators of a process share: its peers, its shared arena, and the thread
// that drives operations for which nobody waits.
//
// Who drives. A thread that waits for an operation polls its group itself ("helps"), so a blocking
// call needs no switch of context. While any thread helps, the engine's thread sleeps. When the
// last helper leaves with operations pending, or gives up spinning, it sets `armed` in the control
// page: whoever then writes shared memory that this process may wait for rings its doorbell, and
// the engine's thread goes on. Sockets wake that thread by themselves.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "hfreduce/communicator.h"
#include "hfreduce/engine/callbacks.h"
#include "hfreduce/shm/arena.h"
#include "hfreduce/wire/peer_table.h"
#include "runtime/clock.h"

namespace hfreduce {

// A communicator as the engine sees it. All calls are thread safe.
class Group {
 public:
  virtual ~Group() = default;
  // Moves operations on; false when none could be moved, or another thread is at it.
  virtual bool poll() = 0;
  // Is there anything that poll() might move?
  virtual bool busy() const = 0;
  // Do some of its operations use sockets?
  virtual bool networked() const = 0;
  // Deadlines and diagnosis; called every 50 ms or so while busy.
  virtual void tick(ff::TimePoint now) = 0;
  // How the rank with this global number was lost; OK if it is a member that lives, or none.
  virtual ff::Status loss_of(int global_rank) const = 0;
};

// The word that says how an operation stands, and on which waiters sleep.
class DoneFlag {
 public:
  bool done() const { return word_.load(std::memory_order_acquire) == kDone; }
  void set_done();
  // Sleeps until done, at most for `longest`.
  void sleep(std::chrono::milliseconds longest);

 private:
  static constexpr std::uint32_t kRunning = 0;
  static constexpr std::uint32_t kDone = 1;
  static constexpr std::uint32_t kSlept = 2;  // running, and someone sleeps
  std::atomic<std::uint32_t> word_{kRunning};
};

class Engine : public FdWatcher, public std::enable_shared_from_this<Engine> {
 public:
  // The engine of this process, started when first asked for and stopped with its last user.
  static ff::Result<std::shared_ptr<Engine>> shared(std::size_t arena_bytes);
  // One of its own, as another process would have: tests run ranks as threads.
  static ff::Result<std::shared_ptr<Engine>> create(std::size_t arena_bytes);
  ~Engine() override;

  PeerTable& peers() { return *peers_; }
  Arena& arena() { return *arena_; }
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  int doorbell() const { return doorbell_.get(); }

  void attach(std::shared_ptr<Group> group);
  void detach(const Group* group);
  // The same, as any of the groups knows it.
  ff::Status loss_of(int global_rank);

  // Helps `group` until `flag` is done (true) or `deadline` passes or `interrupted` (false).
  bool help_until(Group& group, DoneFlag& flag, ff::TimePoint deadline,
                  const std::function<bool()>* interrupted);
  // Operations of `group` have been started and nobody will wait for them soon.
  void ensure_driven(Group& group);
  // How many processes of this host take part; above the number of cores, waiting yields at once.
  void note_local_ranks(int ranks);

  // Runs `callback` on one of the engine's callback threads.
  void post_callback(Callback callback);

  void watch(std::uint64_t id, int fd) override;
  void watch_writes(std::uint64_t id, int fd, bool wanted) override;
  void unwatch(int fd) override;

 private:
  Engine();
  ff::Status start(std::size_t arena_bytes);
  void run();
  bool poll_groups();
  bool pump_network();
  void arm();
  void set_network_watch(bool on);
  void stop();

  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Arena> arena_;
  ff::UniqueFd doorbell_;
  ff::UniqueFd sleep_epoll_;  // the doorbell and network_epoll_: what the engine's thread sleeps in
  ff::UniqueFd network_epoll_;  // all sockets
  std::unique_ptr<PeerTable> peers_;

  std::mutex groups_mu_;
  std::vector<std::shared_ptr<Group>> groups_;
  std::atomic<std::uint64_t> groups_version_{0};

  std::mutex fds_mu_;
  std::vector<std::uint64_t> fd_ids_;  // event id by descriptor

  std::atomic<int> helpers_{0};
  std::atomic<int> network_helpers_{0};
  std::mutex watch_mu_;
  std::atomic<bool> network_watched_{true};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> oversubscribed_{false};
  std::atomic<std::uint32_t>* armed_ = nullptr;

  std::shared_ptr<Callbacks> callbacks_;
  std::thread thread_;
};

}  // namespace hfreduce
