// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "bindings/torch/errors.h"
#include "bindings/torch/python.h"

namespace hfreduce::adapter {
namespace {

template <class Options>
constexpr bool kCanClone = requires(const Options& options) {
  options.clone();
};

}  // namespace

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                 const c10::intrusive_ptr<BackendOptions>& options, std::string name)
    : c10d::Backend(rank, size),
      name_(std::move(name)),
      store_(std::move(store)),
      options_(c10::make_intrusive<BackendOptions>(*options)) {
  const NoGil no_gil;
  if (options_->global_ranks_in_group.empty()) {
    options_->global_ranks_in_group.resize(static_cast<std::size_t>(size));
    std::iota(options_->global_ranks_in_group.begin(), options_->global_ranks_in_group.end(), 0);
  }
  global_ranks_.assign(options_->global_ranks_in_group.begin(),
                       options_->global_ranks_in_group.end());

  hfreduce::Options resolved;
  throw_if_error(options_->resolve(&resolved));
  // Groups made from this one get the timeout that torch hands them, not this group's.
  options_->timeout = resolved.timeout;
  options_->own_timeout.reset();

  const auto meeting_place = std::make_shared<TorchStore>(store_);
  std::string prefix;
  throw_if_error(meeting_place->fresh_prefix("hfreduce", rank, &prefix));
  std::shared_ptr<Communicator> communicator;
  const ff::Status status =
      Communicator::create(meeting_place, prefix, rank, size, resolved, &communicator);
  raise_interrupt();
  throw_if_error(status);
  group_ = std::make_shared<Group>(std::move(communicator), name_);
  remember(group_);
  init();
}

Backend::~Backend() {
  const NoGil no_gil;
  if (group_) group_->close();
  {
    const std::lock_guard lock(mutex_);
    coalesced_.clear();
    barrier_store_.reset();
  }
  store_.reset();
  group_.reset();
}

Backend::BaseOptions Backend::getBackendOptions() {
  // A torch that cannot clone options writes into these when it makes a group from this one.
  if constexpr (kCanClone<Base::Options>) {
    return options_;
  } else {
    return options_->copy();
  }
}

c10::intrusive_ptr<Work> Backend::new_work(c10d::OpType type, Title title, bool is_async,
                                           const Tensors& inputs) {
  stay_if_leaving();
  group_->check_usable();
  if (C10_LIKELY(!at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value())) {
    return c10::make_intrusive<Work>(group_, type, is_async);
  }
  return c10::make_intrusive<Work>(group_, type, is_async, group_->title(title), inputs);
}

WorkPtr Backend::launch(c10::intrusive_ptr<Work> work, RequestPtr request) {
  work->start(std::move(request));
  if (C10_UNLIKELY(is_coalescing_.load(std::memory_order_relaxed))) {
    const std::lock_guard lock(mutex_);
    coalesced_.push_back(work);
  }
  stay_if_leaving();
  return work;
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  communicator().set_timeout(timeout);
}

void Backend::abort() {
  const NoGil no_gil;
  group_->abort("abort() was called");
}

void Backend::shutdown() {
  const NoGil no_gil;
  group_->shutdown();
}

c10d::ErrorType Backend::getError() {
  switch (communicator().health().code()) {
    case ff::Code::kOk:
      return c10d::ErrorType::SUCCESS;
    case ff::Code::kTimeout:
      return c10d::ErrorType::TIMEOUT;
    case ff::Code::kPeerLost:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

std::uint64_t Backend::getSequenceNumberForGroup() { return communicator().sequence(); }

void Backend::enableCollectivesTiming() { group_->timing = true; }

void Backend::registerOnCompletionHook(WorkHook&& hook) {
  if (onCompletionHook_) throw_invalid("hook", "this group has a completion hook already");
  onCompletionHook_ = std::move(hook);
  group_->hooks.set_work_hook(onCompletionHook_);
}

void Backend::waitForPendingWorks() {
  const NoGil no_gil;
  group_->wait_for_pending();
}

void Backend::registerAbortHook(std::int64_t id, AbortHook hook) {
  group_->hooks.add_abort(id, std::move(hook));
}

void Backend::unregisterAbortHook(std::int64_t id) { group_->hooks.remove_abort(id); }

void Backend::registerCompletionHook(std::int64_t id, CompletionHook hook) {
  group_->hooks.add_completion(id, std::move(hook));
}

void Backend::unregisterCompletionHook(std::int64_t id) { group_->hooks.remove_completion(id); }

}  // namespace hfreduce::adapter
