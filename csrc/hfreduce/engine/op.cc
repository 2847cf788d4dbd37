// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/op.h"

#include "hfreduce/counters.h"
#include "hfreduce/engine/communicator_impl.h"

namespace hfreduce {

using ff::Code;
using ff::Status;

namespace {

class FailedOp final : public Op {
 public:
  using Op::Op;
  Advance advance() override { return Advance::kDone; }
  void blockers(std::vector<int>* /*out*/) const override {}
};

}  // namespace

Op::Op(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor)
    : comm_(std::move(comm)), descriptor_(descriptor) {}

std::string Op::title() const {
  std::string text(name_of(descriptor_.kind));
  if (sequence_ != 0) text += " #" + std::to_string(sequence_);
  return text;
}

void Op::set_place(std::uint64_t sequence, std::uint32_t signature, ff::TimePoint deadline,
                   std::chrono::milliseconds timeout) {
  sequence_ = sequence;
  signature_ = signature;
  deadline_ = deadline;
  timeout_ = timeout;
}

Status Op::status() const { return done() ? status_ : Status(); }

Status Op::wait(std::chrono::milliseconds timeout) { return wait_until(timeout, nullptr); }

Status Op::wait(std::chrono::milliseconds timeout, const std::function<bool()>& interrupted) {
  return wait_until(timeout, &interrupted);
}

Status Op::wait_until(std::chrono::milliseconds timeout, const std::function<bool()>* interrupted) {
  if (done()) return status_;
  // Without a limit of the caller's, the operation's own deadline ends the wait: it fails the
  // operation, once it is known who is missing.
  auto deadline = timeout.count() > 0 ? ff::saturating_add(ff::Clock::now(), timeout)
                                      : ff::TimePoint::max() - std::chrono::hours(1);
  if (comm_->engine().help_until(*comm_, flag_, deadline, interrupted)) return status_;
  if (interrupted != nullptr && (*interrupted)()) {
    return Status(Code::kAborted, title() + ": the wait was interrupted");
  }
  return Status(Code::kTimeout,
                title() + " is not done after " + std::to_string(timeout.count()) +
                    " ms of waiting; it is still running",
                {{"op", std::string(name_of(kind()))}, {"seq", std::to_string(sequence_)}});
}

void Op::finish(Status status) {
  status_ = std::move(status);
  std::vector<Callback> callbacks;
  {
    std::lock_guard lock(callbacks_mu_);
    flag_.set_done();
    callbacks.swap(callbacks_);
  }
  live_counters().operations.fetch_add(1, std::memory_order_relaxed);
  for (auto& callback : callbacks) comm_->engine().post_callback(std::move(callback));
}

void Op::on_done(std::function<void()> callback) {
  {
    std::lock_guard lock(callbacks_mu_);
    if (!done()) {
      callbacks_.push_back({std::move(callback), Callbacks::running()});
      return;
    }
  }
  callback();
}

RequestPtr failed_request(std::shared_ptr<CommunicatorImpl> comm, OpKind kind, Status status) {
  OpDescriptor descriptor;
  descriptor.kind = kind;
  auto op = std::make_shared<FailedOp>(std::move(comm), descriptor);
  op->finish(std::move(status));
  return op;
}

}  // namespace hfreduce
