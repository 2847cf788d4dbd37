// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/collectives/allreduce.h"

#include <fmt/format.h>

namespace hfreduce {

using ff::Code;
using ff::Status;

namespace {

// Up to here every member reduces everything: one step of waiting instead of two. Measured on two
// and four ranks; with more ranks the reading of all by all grows, so the bound shrinks.
std::size_t small_limit(int members) {
  return (std::size_t{32} << 10) * 2 / static_cast<std::size_t>(members);
}

}  // namespace

Status prepare_reduction(DType dtype, Reduction reduction, int ranks, Kernels* kernels,
                         Scale* scale) {
  if (Status status = find_kernels(dtype, reduction.op, kernels); !status) return status;
  if (reduction.op == RedOp::kAvg) scale->after = 1.0 / ranks;
  if (reduction.op == RedOp::kPremulSum) scale->before = reduction.factor;
  return {};
}

RequestPtr CommunicatorImpl::allreduce(const void* in, void* out, std::size_t count, DType dtype,
                                       Reduction reduction, OpOptions options) {
  return start_reduce(OpKind::kAllreduce, in, out, count, dtype, reduction, -1, options);
}

RequestPtr CommunicatorImpl::reduce(const void* in, void* out, std::size_t count, DType dtype,
                                    Reduction reduction, int root, OpOptions options) {
  if (Status status = check_root(root); !status) {
    return failed_request(shared_from_this(), OpKind::kReduce, status);
  }
  return start_reduce(OpKind::kReduce, in, rank_ == root ? out : nullptr, count, dtype, reduction,
                      root, options);
}

RequestPtr CommunicatorImpl::start_reduce(OpKind kind, const void* in, void* out,
                                          std::size_t count, DType dtype, Reduction reduction,
                                          int root, OpOptions options) {
  ReduceArgs args;
  args.in = static_cast<const std::byte*>(in);
  args.out = static_cast<std::byte*>(out);
  args.count = count;
  args.size = size_of(dtype);
  args.dtype = dtype;
  args.root = root;
  if (Status status = prepare_reduction(dtype, reduction, size_, &args.kernels, &args.scale);
      !status) {
    return failed_request(shared_from_this(), kind, status);
  }
  OpDescriptor descriptor = describe(kind, dtype, reduction.op, root, count);
  auto self = shared_from_this();
  if (size_ == 1) return submit(make_lone_reduce(self, descriptor, args), options);
  if (layout_.node_count() > 1) {
    return submit(make_internode_reduce(self, descriptor, args), options);
  }
  if (count * args.size <= std::min(small_limit(team_->size()), team_->slot_bytes())) {
    return submit(make_small_reduce(self, descriptor, args), options);
  }
  return submit(make_staged_reduce(self, descriptor, args), options);
}

RequestPtr CommunicatorImpl::barrier(OpOptions options) {
  // An allreduce of nothing, whose result everyone wants.
  static std::byte nothing;
  ReduceArgs args;
  args.in = args.out = &nothing;
  args.size = 1;
  args.dtype = DType::kUInt8;
  if (Status status =
          prepare_reduction(args.dtype, {RedOp::kSum, 1.0}, size_, &args.kernels, &args.scale);
      !status) {
    return failed_request(shared_from_this(), OpKind::kBarrier, status);
  }
  OpDescriptor descriptor = describe(OpKind::kBarrier, args.dtype, RedOp::kSum, -1, 0);
  auto self = shared_from_this();
  if (size_ == 1) return submit(make_lone_reduce(self, descriptor, args), options);
  if (layout_.node_count() > 1) {
    return submit(make_internode_reduce(self, descriptor, args), options);
  }
  return submit(make_small_reduce(self, descriptor, args), options);
}

Status CommunicatorImpl::check_root(int root) const {
  if (root >= 0 && root < size_) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("root is {}, and the group has ranks 0 to {}", root, size_ - 1));
}

namespace {

class LoneReduce final : public Op {
 public:
  LoneReduce(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
             const ReduceArgs& args)
      : Op(std::move(comm), descriptor), args_(args) {}

  Advance advance() override {
    if (args_.count > 0 && args_.out != nullptr) {
      const void* source = args_.in;
      args_.kernels.native_to_native(args_.out, nullptr, &source, 1, args_.count, args_.scale);
    }
    return Advance::kDone;
  }
  void blockers(std::vector<int>* /*out*/) const override {}

 private:
  const ReduceArgs args_;
};

}  // namespace

std::shared_ptr<Op> make_lone_reduce(std::shared_ptr<CommunicatorImpl> comm,
                                     const OpDescriptor& descriptor, const ReduceArgs& args) {
  return std::make_shared<LoneReduce>(std::move(comm), descriptor, args);
}

}  // namespace hfreduce
