// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/work.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "bindings/torch/errors.h"
#include "bindings/torch/joined_request.h"
#include "bindings/torch/python.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {
namespace {

std::atomic<std::uint64_t> g_next_key{1};

// Copies between a person's tensors and ours are not part of their computation: no autograd, no
// version counters.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

at::Tensor plain_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

c10d::WorkResult to_result(const ff::Status& status) {
  if (status.ok()) return c10d::WorkResult::SUCCESS;
  return status.code() == ff::Code::kTimeout ? c10d::WorkResult::TIMEOUT
                                             : c10d::WorkResult::COMM_ERROR;
}

}  // namespace

Work::Work(std::shared_ptr<Group> group, c10d::OpType type, bool is_async, const char* title,
           const std::optional<std::vector<at::Tensor>>& inputs)
    : c10d::Work(group->communicator().rank(), type, title, inputs), is_async_(is_async) {
  tail_.group = std::move(group);
  tail_.type = type;
  tail_.key = g_next_key.fetch_add(1, std::memory_order_relaxed);
  tail_.end_profiler_range = std::move(recordFunctionEndCallback_);
}

Work::~Work() {
  if (!request_ || stage_.load(std::memory_order_acquire) == Stage::kDelivered) return;
  if (tail_.group->is_forked()) {
    // The engine that would call back lives in the parent.
    static_cast<void>(std::make_unique<Tail>(std::move(tail_)).release());
    static_cast<void>(std::make_unique<RequestPtr>(std::move(request_)).release());
    return;
  }
  Request* const request = request_.get();
  request->on_done(callback([request, tail = std::make_shared<Tail>(std::move(tail_))] {
    tail->deliver(request->status());
    tail->report(request->status());
  }));
}

at::Tensor Work::read(const at::Tensor& tensor) {
  if (C10_LIKELY(is_plain(tensor))) {
    tail_.held.push_back(tensor);
    return tensor;
  }
  return read_copy(tensor);
}

at::Tensor Work::read_copy(const at::Tensor& tensor) {
  const BelowAutograd guard;
  at::Tensor plain = plain_like(tensor);
  plain.copy_(tensor);
  tail_.held.push_back(plain);
  return plain;
}

at::Tensor Work::write(const at::Tensor& tensor) {
  if (C10_LIKELY(is_plain(tensor))) {
    tail_.held.push_back(tensor);
    return tensor;
  }
  const BelowAutograd guard;
  at::Tensor plain = plain_like(tensor);
  tail_.copies.emplace_back(tensor, plain);
  return plain;
}

at::Tensor Work::update(const at::Tensor& tensor) {
  at::Tensor plain = write(tensor);
  if (C10_UNLIKELY(!plain.is_same(tensor))) {
    const BelowAutograd guard;
    plain.copy_(tensor);
  }
  return plain;
}

std::vector<Bytes> Work::write_each(const std::vector<at::Tensor>& tensors) {
  std::vector<Bytes> memory;
  memory.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) memory.push_back(writable(write(tensor)));
  if (disjoint(memory)) return memory;
  const BelowAutograd guard;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_plain(tensors[i])) continue;  // has a copy of its own already
    at::Tensor plain = plain_like(tensors[i]);
    memory[i] = writable(plain);
    tail_.copies.emplace_back(tensors[i], std::move(plain));
  }
  return memory;
}

void Work::returns(const std::vector<at::Tensor>& tensors) {
  outputs_.append(tensors.begin(), tensors.end());
}

void Work::start(RequestPtr request) {
  Group& group = *tail_.group;
  request_ = std::move(request);
  tail_.sequence = request_->sequence();
  tail_.timed = group.timing.load(std::memory_order_relaxed);
  tail_.counted = group.hooks.wants_works();
  if (C10_UNLIKELY(tail_.timed || tail_.counted)) tail_.started = Clock::now();
  if (C10_UNLIKELY(tail_.counted)) group.add_pending();
  // A caller that waits at once does by itself what is left to do; otherwise nobody may come.
  if (is_async_ && (tail_.timed || group.hooks.wants_completions() || !tail_.copies.empty() ||
                    tail_.end_profiler_range)) {
    auto self = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
    request_->on_done(callback([self = std::move(self)] { self->finish(); }));
  }
  if (C10_UNLIKELY(request_->done() && !request_->status().ok())) {
    finish();
    throw_status(explained(request_->status()));
  }
}

void Work::start_joined(std::vector<c10::intrusive_ptr<Work>> parts) {
  std::vector<RequestPtr> requests;
  for (const auto& part : parts) {
    requests.push_back(part->request_);
    outputs_.append(part->outputs_.begin(), part->outputs_.end());
  }
  tail_.parts = std::move(parts);
  start(std::make_shared<JoinedRequest>(std::move(requests)));
}

void Work::Tail::deliver(const ff::Status& status) {
  if (C10_UNLIKELY(timed || counted)) finished = Clock::now();
  for (const auto& part : parts) part->finish();
  if (!status.ok()) return;
  try {
    const BelowAutograd guard;
    for (const auto& [to, from] : copies) to.copy_(from);
  } catch (const std::exception& error) {
    failure = ff::Status(ff::Code::kInternal,
                         std::string("copying a result into its tensor failed: ") + error.what());
  }
}

void Work::Tail::report(const ff::Status& status) {
  parts.clear();
  copies.clear();
  held.clear();
  if (end_profiler_range) {
    end_profiler_range();
    end_profiler_range = nullptr;
  }
  if (!status.ok()) group->note_failure(status);
  if (!group->hooks.wants_completions()) return;
  const std::chrono::duration<float, std::milli> duration = finished - started;
  if (status.ok()) {
    group->hooks.completed(key, timed ? std::make_optional(duration.count()) : std::nullopt);
  }
  if (!counted) return;
  group->hooks.finished(
      std::make_shared<c10d::WorkInfo>(type, sequence, started, finished, duration));
  group->remove_pending();
}

void Work::finish() {
  Stage stage = stage_.load(std::memory_order_acquire);
  if (stage == Stage::kDelivered) return;
  if (stage == Stage::kRunning &&
      stage_.compare_exchange_strong(stage, Stage::kDelivering, std::memory_order_acq_rel)) {
    const ff::Status status = request_->status();
    tail_.deliver(status);
    stage_.store(Stage::kDelivered, std::memory_order_release);
    stage_.notify_all();
    tail_.report(status);
    return;
  }
  stage_.wait(Stage::kDelivering, std::memory_order_acquire);
}

bool Work::wait(std::chrono::milliseconds timeout) {
  static const std::function<bool()> check = interrupted;
  timeout = std::max(timeout, std::chrono::milliseconds::zero());
  const NoGil no_gil;
  const ff::Status status =
      on_main_thread() ? request_->wait(timeout, check) : request_->wait(timeout);
  stay_if_leaving();
  if (C10_UNLIKELY(!status.ok())) {
    if (request_->done()) finish();
    raise_interrupt();
    throw_status(explained(status));
  }
  finish();
  throw_if_error(explained(tail_.failure));
  return true;
}

bool Work::isCompleted() {
  if (!request_->done()) return false;
  finish();
  return true;
}

bool Work::isSuccess() const { return const_cast<Work*>(this)->isCompleted() && outcome().ok(); }

ff::Status Work::outcome() const {
  const ff::Status status = request_->status();
  return explained(status.ok() ? tail_.failure : status);
}

ff::Status Work::explained(ff::Status status) const {
  if (status.ok()) return status;
  if (status.fact("op").empty()) {
    status = status.with("op", std::string(name_of(request_->kind())));
  }
  if (status.fact("seq").empty() && request_->sequence() != 0) {
    status = status.with("seq", std::to_string(request_->sequence()));
  }
  const std::string& group = tail_.group->communicator().options().group_name;
  if (status.fact("group").empty() && !group.empty()) status = status.with("group", group);
  return status;
}

std::exception_ptr Work::exception() const {
  if (!const_cast<Work*>(this)->isCompleted()) return nullptr;
  const ff::Status status = outcome();
  return status.ok() ? nullptr : to_exception(status);
}

int Work::sourceRank() const { return request_->source(); }

std::vector<at::Tensor> Work::result() { return {outputs_.begin(), outputs_.end()}; }

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() { return make_future(false); }

c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult() { return make_future(true); }

c10::intrusive_ptr<c10::ivalue::Future> Work::make_future(bool as_result) {
  auto& slot = as_result ? result_future_ : future_;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    if (slot) return slot;
    const c10::TypePtr type = as_result
                                  ? c10::TypePtr(c10::IntType::get())
                                  : c10::TypePtr(c10::ListType::create(c10::TensorType::get()));
    slot = future = c10::make_intrusive<c10::ivalue::Future>(type);
  }
  auto self = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
  request_->on_done(
      callback([self = std::move(self), future, as_result] { self->complete(future, as_result); }));
  return future;
}

void Work::complete(const c10::intrusive_ptr<c10::ivalue::Future>& future, bool as_result) {
  finish();
  const ff::Status status = outcome();
  if (as_result) {
    future->markCompleted(c10::IValue(static_cast<std::int64_t>(to_result(status))));
  } else if (status.ok()) {
    future->markCompleted(c10::IValue(result()));
  } else {
    future->setError(to_exception(status));
  }
}

float Work::getDuration() const {
  if (!tail_.timed) {
    throw_invalid("work",
                  "this operation was not timed; call _enable_collectives_timing() on the "
                  "group before it");
  }
  if (stage_.load(std::memory_order_acquire) != Stage::kDelivered) {
    throw_invalid("work", "the operation is still running; wait() for it first");
  }
  return std::chrono::duration<float, std::milli>(tail_.finished - tail_.started).count();
}

std::uint64_t Work::getSequencenumber() const { return request_->sequence(); }

std::chrono::milliseconds Work::getTimeout() const {
  return tail_.group->communicator().options().timeout;
}

}  // namespace hfreduce::adapter
