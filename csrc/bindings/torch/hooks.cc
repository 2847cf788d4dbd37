// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/hooks.h"

#include <chrono>
#include <thread>
#include <utility>

namespace hfreduce::adapter {
namespace {

constexpr std::chrono::seconds kLongestAborting{10};

}  // namespace

std::shared_ptr<const Hooks::State> Hooks::state() {
  const std::lock_guard lock(mutex_);
  return state_;
}

template <class Change>
void Hooks::change(const Change& change) {
  std::shared_ptr<const State> old;  // goes after the lock: hooks may run code when they go
  const std::lock_guard lock(mutex_);
  auto next = std::make_shared<State>(*state_);
  change(*next);
  works_wanted_.store(next->work != nullptr, std::memory_order_relaxed);
  completions_wanted_.store(!next->completion.empty() || next->work != nullptr,
                            std::memory_order_relaxed);
  old = std::exchange(state_, std::move(next));
}

void Hooks::set_work_hook(WorkHook hook) {
  change([&](State& state) { state.work = std::move(hook); });
}

void Hooks::add_completion(std::int64_t id, CompletionHook hook) {
  change([&](State& state) { state.completion[id] = std::move(hook); });
}

void Hooks::remove_completion(std::int64_t id) {
  change([&](State& state) { state.completion.erase(id); });
}

void Hooks::add_abort(std::int64_t id, AbortHook hook) {
  change([&](State& state) { state.abort[id] = std::move(hook); });
}

void Hooks::remove_abort(std::int64_t id) {
  change([&](State& state) { state.abort.erase(id); });
}

void Hooks::completed(std::uint64_t key, std::optional<float> duration_ms) {
  CompletionArguments arguments;
  arguments.completionKey = key;
  arguments.duration_ms = duration_ms;
  const auto current = state();
  for (const auto& [id, hook] : current->completion) hook(arguments);
}

void Hooks::finished(const std::shared_ptr<c10d::WorkInfo>& info) {
  const auto current = state();
  if (!current->work) return;
  try {
    current->work(info);
  } catch (const std::exception& error) {
    TORCH_WARN("hfreduce: the completion hook raised: ", error.what());
  }
}

void Hooks::start_aborting() {
  auto current = state();
  if (current->abort.empty()) return;
  std::promise<void> ran;
  {
    const std::lock_guard lock(mutex_);
    aborting_ = ran.get_future().share();
  }
  std::thread([current = std::move(current), ran = std::move(ran)]() mutable {
    for (const auto& [id, hook] : current->abort) {
      try {
        hook();
      } catch (const std::exception& error) {
        TORCH_WARN("hfreduce: an abort hook raised: ", error.what());
      }
    }
    current.reset();
    ran.set_value();
  }).detach();
}

void Hooks::join_aborting() {
  std::shared_future<void> running;
  {
    const std::lock_guard lock(mutex_);
    running = aborting_;
  }
  if (running.valid()) running.wait_for(kLongestAborting);
}

}  // namespace hfreduce::adapter
