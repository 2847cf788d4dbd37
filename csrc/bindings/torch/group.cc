// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/group.h"

#include <pthread.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/torch/errors.h"
#include "bindings/torch/python.h"

namespace hfreduce::adapter {
namespace {

std::atomic<unsigned> g_forks{0};

// How long an unannounced end waits for operations in flight before it aborts them.
constexpr std::chrono::seconds kCloseTimeout{5};

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Group>> groups;
};

Registry& registry() {
  static auto* const instance = new Registry;  // outlives whatever may still use it
  return *instance;
}

constexpr std::array<const char*, kTitleCount> kOperations = {
    "all_reduce", "reduce",         "broadcast",  "all_gather", "gather",
    "scatter",    "reduce_scatter", "all_to_all", "barrier",    "send",
    "recv",       "recvAnySource",  "coalesced"};

}  // namespace

void watch_forks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] {
    g_forks.fetch_add(1, std::memory_order_relaxed);
    CallbackToken::forget_all();
  });
  static_cast<void>(once);
}

unsigned Group::fork_generation() { return g_forks.load(std::memory_order_relaxed); }

void Group::throw_forked() {
  throw_status(ff::Status(
      ff::Code::kUnsupported,
      "this process was forked from one that had this group, and a group does not survive a fork; "
      "make a group of its own in the child, or start the child with the 'spawn' method"));
}

Group::Group(std::shared_ptr<Communicator> communicator, const std::string& name)
    : communicator_(std::move(communicator)), fork_generation_(fork_generation()) {
  for (std::size_t i = 0; i < kTitleCount; ++i) titles_[i] = name + ":" + kOperations[i];
}

Group::~Group() {
  if (is_forked()) {
    // The parent still uses what this object stands for; nothing of it is ours to close.
    static_cast<void>(
        std::make_unique<std::shared_ptr<Communicator>>(std::move(communicator_)).release());
    return;
  }
  const NoGil no_gil;
  communicator_.reset();
}

void Group::shutdown() {
  closed_ = true;
  if (is_forked()) return;
  communicator_->shutdown();
  hooks.join_aborting();
}

void Group::abort(const std::string& why) {
  closed_ = true;
  if (is_forked()) return;
  hooks.start_aborting();
  communicator_->abort(why);
  hooks.join_aborting();
}

void Group::close() {
  if (closed_.exchange(true) || is_forked()) return;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::thread impatient([&] {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, kCloseTimeout, [&] { return done; })) {
      communicator_->abort("the program let go of the group while operations were in flight");
    }
  });
  communicator_->shutdown();
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_all();
  impatient.join();
  hooks.join_aborting();
}

void remember(const std::shared_ptr<Group>& group) {
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().groups, [](const auto& known) { return known.expired(); });
  registry().groups.push_back(group);
}

void close_all_groups() {
  std::vector<std::weak_ptr<Group>> groups;
  {
    const std::lock_guard lock(registry().mutex);
    groups.swap(registry().groups);
  }
  for (const auto& known : groups) {
    if (const auto group = known.lock()) group->close();
  }
}

void Group::note_failure(const ff::Status& status) {
  switch (status.code()) {
    case ff::Code::kOk:
    case ff::Code::kInvalidArgument:
    case ff::Code::kUnsupported:
      return;
    default:
      break;
  }
  // Whoever is leaving does not want to know what became of the rest.
  if (closed_) return;
  if (!failed_.exchange(true)) hooks.start_aborting();
}

void Group::add_pending() {
  const std::lock_guard lock(mutex_);
  ++pending_;
}

void Group::remove_pending() {
  const std::lock_guard lock(mutex_);
  if (--pending_ == 0) idle_.notify_all();
}

void Group::wait_for_pending() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return pending_ == 0; });
}

}  // namespace hfreduce::adapter
