// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/sparse.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/joined_request.h"
#include "bindings/torch/python.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {
namespace {

using std::chrono::milliseconds;

// A row of shapes_: sparse dimensions, dense dimensions, entries, then the sizes.
constexpr std::int64_t kMaxDims = 13;
constexpr std::int64_t kRow = kMaxDims + 3;
constexpr std::int64_t kEntries = 2;

// Tags of persons are non-negative ints, so these are out of their reach.
std::uint32_t tag_of(std::uint64_t sequence, bool of_values) {
  return 0x80000000U | static_cast<std::uint32_t>(sequence * 2 + (of_values ? 1 : 0));
}

constexpr milliseconds kSignalCheck{50};

}  // namespace

WorkPtr Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  constexpr const char* kOp = "all_reduce";
  const at::Tensor& tensor = only(tensors, kOp, "tensor");
  if (tensor.layout() != at::kSparse || !tensor.device().is_cpu()) {
    throw_invalid(kOp, "the sparse tensor is ", tensor.layout(), " on ", tensor.device(),
                  "; use a torch.sparse_coo tensor on the CPU");
  }
  if (tensor.dim() > kMaxDims) {
    throw_invalid(kOp, "the sparse tensor has ", tensor.dim(), " dimensions; use at most ",
                  kMaxDims);
  }
  const c10d::ReduceOp::RedOpType op = options.reduceOp.op_;
  if (op != c10d::ReduceOp::SUM && op != c10d::ReduceOp::AVG) {
    throw_unsupported(kOp,
                      "sparse tensors can be reduced by SUM and AVG only; use one of them, or "
                      "tensor.to_dense()");
  }
  const bool averages = op == c10d::ReduceOp::AVG;
  if (averages && !tensor.is_floating_point() && !tensor.is_complex()) {
    throw_unsupported(kOp, "AVG of integers is not defined; use SUM and divide");
  }
  reducible_dtype(tensor, kOp);
  auto work =
      new_work(c10d::OpType::_ALLREDUCE_SPARSE, Title::kAllReduce, options.asyncOp, tensors);
  work->returns(tensor);
  auto request =
      std::make_shared<SparseAllreduce>(group_, tensor, averages ? size_ : 1, op_options(options));
  request->start();
  return launch(std::move(work), std::move(request));
}

SparseAllreduce::SparseAllreduce(std::shared_ptr<Group> group, at::Tensor tensor, int divisor,
                                 OpOptions options)
    : group_(std::move(group)), tensor_(std::move(tensor)), divisor_(divisor), options_(options) {}

void SparseAllreduce::start() {
  const at::AutoDispatchBelowADInplaceOrView guard;
  Communicator& communicator = group_->communicator();
  mine_ = tensor_.coalesce();
  const auto integers = at::TensorOptions().dtype(at::kLong);
  at::Tensor shape = at::zeros({kRow}, integers);
  auto* field = shape.mutable_data_ptr<std::int64_t>();
  *field++ = mine_.sparse_dim();
  *field++ = mine_.dense_dim();
  *field++ = mine_._nnz();
  for (const std::int64_t size : mine_.sizes()) *field++ = size;
  shapes_ = at::empty({communicator.size(), kRow}, integers);
  stage_ = communicator.allgather(readable(shape), writable_pieces(shapes_, communicator.size()),
                                  DType::kInt64, options_);
  sequence_ = stage_->sequence();
  stage_->on_done(
      callback([self = shared_from_this(), shape] { self->guarded(&SparseAllreduce::exchange); }));
}

void SparseAllreduce::guarded(void (SparseAllreduce::*stage)()) {
  if (ff::Status status = stage_->status(); !status.ok()) {
    finish(std::move(status));
    return;
  }
  try {
    const at::AutoDispatchBelowADInplaceOrView guard;
    (this->*stage)();
  } catch (const std::exception& error) {
    finish(ff::Status(ff::Code::kResource,
                      std::string("all_reduce of a sparse tensor: ") + error.what(),
                      {{"op", "allreduce"}, {"seq", std::to_string(sequence_)}}));
  }
}

std::int64_t SparseAllreduce::entries_of(int rank) const {
  return shapes_.const_data_ptr<std::int64_t>()[rank * kRow + kEntries];
}

void SparseAllreduce::exchange() {
  Communicator& communicator = group_->communicator();
  const int me = communicator.rank();
  const int ranks = communicator.size();

  const auto* shapes = shapes_.const_data_ptr<std::int64_t>();
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::int64_t i = 0; i < kRow; ++i) {
      if (i == kEntries || shapes[rank * kRow + i] == shapes[me * kRow + i]) continue;
      finish(ff::Status(ff::Code::kMismatch,
                        "all_reduce of a sparse tensor: rank " + std::to_string(rank) +
                            " called it with another shape, or another number of sparse dimensions",
                        {{"op", "allreduce"},
                         {"seq", std::to_string(sequence_)},
                         {"rank", std::to_string(rank)}}));
      return;
    }
  }

  indices_.resize(static_cast<std::size_t>(ranks));
  values_.resize(static_cast<std::size_t>(ranks));
  std::vector<RequestPtr> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank == me) {
      indices_[r] = mine_._indices().contiguous();
      values_[r] = mine_._values().contiguous();
      continue;
    }
    std::vector<std::int64_t> sizes = mine_._values().sizes().vec();
    sizes[0] = entries_of(rank);
    indices_[r] = at::empty({mine_.sparse_dim(), entries_of(rank)}, mine_._indices().options());
    values_[r] = at::empty(sizes, mine_._values().options());
    if (entries_of(rank) == 0) continue;
    parts.push_back(
        communicator.recv(writable(indices_[r]), rank, tag_of(sequence_, false), options_));
    parts.push_back(
        communicator.recv(writable(values_[r]), rank, tag_of(sequence_, true), options_));
  }
  const auto own = static_cast<std::size_t>(me);
  for (int rank = 0; rank < ranks && entries_of(me) != 0; ++rank) {
    if (rank == me) continue;
    parts.push_back(
        communicator.send(readable(indices_[own]), rank, tag_of(sequence_, false), options_));
    parts.push_back(
        communicator.send(readable(values_[own]), rank, tag_of(sequence_, true), options_));
  }
  stage_ = std::make_shared<JoinedRequest>(std::move(parts));
  stage_->on_done(
      callback([self = shared_from_this()] { self->guarded(&SparseAllreduce::add_up); }));
}

void SparseAllreduce::add_up() {
  const at::Tensor indices = at::cat(indices_, 1);
  at::Tensor values = at::cat(values_, 0);
  // As for dense tensors: narrow types are added in fp32 and rounded once.
  const bool is_narrow = values.is_floating_point() && values.element_size() < 4;
  if (is_narrow) values = values.to(at::kFloat);
  at::Tensor sum = at::sparse_coo_tensor(indices, values, mine_.sizes()).coalesce();
  at::Tensor total = sum._values();
  if (divisor_ != 1) total = total / divisor_;
  if (is_narrow) total = total.to(tensor_.scalar_type());
  const at::Tensor result = at::_sparse_coo_tensor_unsafe(sum._indices(), total, mine_.sizes());
  tensor_.copy_(result._coalesced_(true));
  finish({});
}

void SparseAllreduce::finish(ff::Status status) {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    if (done_) return;
    done_ = true;
    status_ = std::move(status);
    callbacks.swap(callbacks_);
    // The stages' callbacks hold this object and it holds the stages.
    stage_.reset();
  }
  changed_.notify_all();
  for (const auto& callback : callbacks) callback();
}

bool SparseAllreduce::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

ff::Status SparseAllreduce::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

ff::Status SparseAllreduce::wait(milliseconds timeout) {
  return wait(timeout, [] { return false; });
}

ff::Status SparseAllreduce::wait(milliseconds timeout, const std::function<bool()>& interrupted) {
  using Clock = std::chrono::steady_clock;
  // Without a timeout of the caller's the stages' own end the wait.
  const Clock::time_point deadline =
      timeout == milliseconds::zero() ? Clock::time_point::max() : Clock::now() + timeout;
  std::unique_lock lock(mutex_);
  while (!done_) {
    changed_.wait_until(lock, std::min(deadline, Clock::now() + kSignalCheck));
    if (done_) break;
    if (Clock::now() >= deadline) {
      return ff::Status(ff::Code::kTimeout,
                        "all_reduce of a sparse tensor is still running after " +
                            std::to_string(timeout.count()) + " ms",
                        {{"op", "allreduce"}, {"seq", std::to_string(sequence_)}});
    }
    lock.unlock();
    const bool stop = interrupted();
    lock.lock();
    if (stop) return ff::Status(ff::Code::kAborted, "the wait was interrupted");
  }
  return status_;
}

void SparseAllreduce::on_done(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

}  // namespace hfreduce::adapter
