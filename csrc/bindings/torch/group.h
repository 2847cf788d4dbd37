// SPDX-License-Identifier: Apache-2.0
//
// Group: what a backend and its operations share. An operation may outlive its backend (a Work that
// is kept, a send that nobody waits for), so the group belongs to both.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "bindings/torch/hooks.h"
#include "hfreduce/communicator.h"

namespace hfreduce::adapter {

// What the profiler calls the operations: "hfreduce:all_reduce".
enum class Title {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kRecv,
  kRecvAnySource,
  kCoalesced,
};
inline constexpr std::size_t kTitleCount = 13;

class Group {
 public:
  Group(std::shared_ptr<Communicator> communicator, const std::string& name);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Communicator& communicator() { return *communicator_; }

  // Leaves in good order, and waits as long as operations in flight take.
  void shutdown();
  void abort(const std::string& why);
  // As shutdown(), but for a group that nobody shut down: waits a moment only, then aborts.
  void close();

  const char* title(Title title) const { return titles_[static_cast<std::size_t>(title)].c_str(); }

  // Throws in a process that was forked after the group was made: the engine's threads and its
  // connections stayed with the parent.
  void check_usable() const {
    if (fork_generation_ != fork_generation()) throw_forked();
  }
  bool is_forked() const { return fork_generation_ != fork_generation(); }

  Hooks hooks;
  std::atomic<bool> timing{false};

  // Runs the abort hooks the first time that an operation fails in a way that ends the group.
  void note_failure(const ff::Status& status);

  // Operations whose completion hook has yet to run.
  void add_pending();
  void remove_pending();
  void wait_for_pending();

 private:
  static unsigned fork_generation();
  [[noreturn]] static void throw_forked();

  std::shared_ptr<Communicator> communicator_;
  std::array<std::string, kTitleCount> titles_;
  unsigned fork_generation_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> failed_{false};

  std::mutex mutex_;
  std::condition_variable idle_;
  std::size_t pending_ = 0;
};

// Counts forks of this process from now on.
void watch_forks();

// For the end of the program.
void remember(const std::shared_ptr<Group>& group);
void close_all_groups();

}  // namespace hfreduce::adapter
