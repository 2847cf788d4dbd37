// SPDX-License-Identifier: Apache-2.0
//
// Hooks that torch hangs on a backend, in the types of whatever torch this is compiled against.
//
// torch 2.15 offers completion hooks, 2.14 abort hooks, older versions neither. Their types are
// read off the base class, so nothing here depends on a version number.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hfreduce::adapter {

template <class Member>
struct HookOf;
template <class Base, class Hook>
struct HookOf<void (Base::*)(std::int64_t, Hook)> {
  using Type = Hook;
};

template <class Hook>
struct ArgumentOf;
template <class Argument>
struct ArgumentOf<std::function<void(const Argument&)>> {
  using Type = Argument;
};

// What a torch without completion hooks would have reported.
struct NoCompletion {
  std::uint64_t completionKey = 0;  // NOLINT(readability-identifier-naming): torch's name
  std::optional<float> duration_ms;
};

template <class Base>
struct CompletionHookOf {
  using Type = std::function<void(const NoCompletion&)>;
};
template <class Base>
requires requires { &Base::registerCompletionHook; }
struct CompletionHookOf<Base> {
  using Type = typename HookOf<decltype(&Base::registerCompletionHook)>::Type;
};

using AbortHook = std::function<void()>;
using CompletionHook = CompletionHookOf<c10d::Backend>::Type;
using CompletionArguments = ArgumentOf<CompletionHook>::Type;
using WorkHook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

// No lock is held while a hook runs: it may hold the last reference to what it serves, and remove
// itself on the way.
class Hooks {
 public:
  // Whether completions must be reported at all, and whether with their times; read on the hot
  // path.
  bool wants_completions() const { return completions_wanted_.load(std::memory_order_relaxed); }
  bool wants_works() const { return works_wanted_.load(std::memory_order_relaxed); }

  void set_work_hook(WorkHook hook);
  void add_completion(std::int64_t id, CompletionHook hook);
  void remove_completion(std::int64_t id);
  void add_abort(std::int64_t id, AbortHook hook);
  void remove_abort(std::int64_t id);

  void completed(std::uint64_t key, std::optional<float> duration_ms);
  void finished(const std::shared_ptr<c10d::WorkInfo>& info);
  // Runs the abort hooks on a thread of their own: a flight recorder's dump takes a second, for
  // which no error waits. join_aborting() waits for them, for a while.
  void start_aborting();
  void join_aborting();

 private:
  // Replaced as a whole by every change, so that a call can go on with the one it began with.
  struct State {
    std::map<std::int64_t, CompletionHook> completion;
    std::map<std::int64_t, AbortHook> abort;
    WorkHook work;
  };

  std::shared_ptr<const State> state();
  template <class Change>
  void change(const Change& change);

  std::shared_future<void> aborting_;  // guarded by mutex_

  std::atomic<bool> completions_wanted_{false};
  std::atomic<bool> works_wanted_{false};
  std::mutex mutex_;
  std::shared_ptr<const State> state_ = std::make_shared<State>();
};

}  // namespace hfreduce::adapter
