// SPDX-License-Identifier: Apache-2.0
//
// SparseAllreduce: the sum of sparse tensors, as a request.
//
// Three stages, none of which holds up the caller:
//   1. every rank tells its shape and its number of entries (an allgather, in the group's order);
//   2. the entries go straight from each rank to each other one. How many there are is known only
//      after stage 1, and by then the group's order belongs to later operations, so they go point
//      to point, under tags that no person can use;
//   3. each rank adds them up, in the order of ranks: all get the same bits.
#pragma once

#include <ATen/ATen.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "bindings/torch/group.h"
#include "hfreduce/communicator.h"

namespace hfreduce::adapter {

class SparseAllreduce final : public Request, public std::enable_shared_from_this<SparseAllreduce> {
 public:
  // `tensor` is replaced by the sum, divided by `divisor`.
  SparseAllreduce(std::shared_ptr<Group> group, at::Tensor tensor, int divisor, OpOptions options);
  void start();

  bool done() const override;
  ff::Status wait(std::chrono::milliseconds timeout) override;
  ff::Status wait(std::chrono::milliseconds timeout,
                  const std::function<bool()>& interrupted) override;
  ff::Status status() const override;
  void on_done(std::function<void()> callback) override;
  OpKind kind() const override { return OpKind::kAllreduce; }
  std::uint64_t sequence() const override { return sequence_; }
  int source() const override { return -1; }

 private:
  void exchange();
  void add_up();
  void finish(ff::Status status);
  // Runs a stage; what it throws becomes the outcome.
  void guarded(void (SparseAllreduce::*stage)());
  std::int64_t entries_of(int rank) const;

  const std::shared_ptr<Group> group_;
  const at::Tensor tensor_;
  const int divisor_;
  const OpOptions options_;
  at::Tensor mine_;    // coalesced
  at::Tensor shapes_;  // one row a rank
  std::uint64_t sequence_ = 0;
  std::vector<at::Tensor> indices_;  // of each rank
  std::vector<at::Tensor> values_;
  RequestPtr stage_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  ff::Status status_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace hfreduce::adapter
