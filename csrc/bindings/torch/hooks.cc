// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/hooks.h"

#include <utility>
#include <vector>

namespace hfreduce::adapter {

void Hooks::update() {
  works_wanted_.store(work_ != nullptr, std::memory_order_relaxed);
  completions_wanted_.store(!completion_.empty() || work_ != nullptr, std::memory_order_relaxed);
}

void Hooks::set_work_hook(WorkHook hook) {
  const std::lock_guard lock(mutex_);
  work_ = std::make_shared<const WorkHook>(std::move(hook));
  update();
}

void Hooks::add_completion(std::int64_t id, CompletionHook hook) {
  const std::lock_guard lock(mutex_);
  completion_[id] = std::move(hook);
  update();
}

void Hooks::remove_completion(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  completion_.erase(id);
  update();
}

void Hooks::add_abort(std::int64_t id, AbortHook hook) {
  const std::lock_guard lock(mutex_);
  abort_[id] = std::move(hook);
}

void Hooks::remove_abort(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  abort_.erase(id);
}

void Hooks::completed(std::uint64_t key, std::optional<float> duration_ms) {
  CompletionArguments arguments;
  arguments.completionKey = key;
  arguments.duration_ms = duration_ms;
  // torch's contract for these hooks (short, no GIL, no call back) allows the lock, which makes
  // removal safe.
  const std::lock_guard lock(mutex_);
  for (const auto& [id, hook] : completion_) hook(arguments);
}

void Hooks::finished(const std::shared_ptr<c10d::WorkInfo>& info) {
  std::shared_ptr<const WorkHook> hook;
  {
    const std::lock_guard lock(mutex_);
    hook = work_;
  }
  if (!hook) return;
  try {
    (*hook)(info);
  } catch (const std::exception& error) {
    TORCH_WARN("hfreduce: the completion hook raised: ", error.what());
  }
}

void Hooks::aborting() {
  // These may be Python functions, which take the GIL and may call back: no lock is held.
  std::vector<AbortHook> hooks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, hook] : abort_) hooks.push_back(hook);
  }
  for (const AbortHook& hook : hooks) {
    try {
      hook();
    } catch (const std::exception& error) {
      TORCH_WARN("hfreduce: an abort hook raised: ", error.what());
    }
  }
}

}  // namespace hfreduce::adapter
