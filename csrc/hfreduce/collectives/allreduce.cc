// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/collectives/allreduce.h"

#include <fmt/format.h>

#include "hfreduce/collectives/premultiplied.h"

namespace hfreduce {

using ff::Code;
using ff::Status;

namespace {

// Up to here every member reduces everything: one step of waiting instead of two. Measured on two
// and four ranks; with more ranks the reading of all by all grows, so the bound shrinks.
std::size_t small_limit(int members) {
  return (std::size_t{32} << 10) * 2 / static_cast<std::size_t>(members);
}

ReduceArgs reduce_args(const void* in, void* out, std::size_t count, DType dtype, int root) {
  ReduceArgs args;
  args.in = static_cast<const std::byte*>(in);
  args.out = static_cast<std::byte*>(out);
  args.count = count;
  args.size = size_of(dtype);
  args.dtype = dtype;
  args.root = root;
  return args;
}

}  // namespace

Status prepare_reduction(DType dtype, Reduction reduction, int ranks, Kernels* kernels,
                         Scale* scale) {
  if (Status status = find_kernels(dtype, reduction.op, kernels); !status) return status;
  if (reduction.op == RedOp::kAvg) scale->after = 1.0 / ranks;
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

RequestPtr CommunicatorImpl::start_reduce(OpKind kind, const void* in, void* out, std::size_t count,
                                          DType dtype, Reduction reduction, int root,
                                          OpOptions options) {
  Kernels kernels;
  Scale scale;
  if (Status status = prepare_reduction(dtype, reduction, size_, &kernels, &scale); !status) {
    return failed_request(shared_from_this(), kind, status);
  }
  const std::size_t size = size_of(dtype);
  OpDescriptor descriptor = describe(kind, dtype, reduction.op, root, count);
  if (reduction.op == RedOp::kPremulSum) {
    auto sum = [&](const std::vector<ConstBytes>& wide, Bytes target) {
      DType wide_type = accumulator_of(dtype);
      ReduceArgs args = reduce_args(wide[0].data, target.data, count, wide_type, root);
      // Cannot fail where PREMUL_SUM is known.
      static_cast<void>(find_kernels(wide_type, RedOp::kSum, &args.kernels));
      return make_reduce(descriptor, args);
    };
    return submit(make_premultiplied(shared_from_this(), descriptor, kernels, reduction.factor,
                                     {{in, count * size}}, size, {out, count * size}, sum),
                  options);
  }
  ReduceArgs args = reduce_args(in, out, count, dtype, root);
  args.kernels = kernels;
  args.scale = scale;
  return submit(make_reduce(descriptor, args), options);
}

// The shape that serves best.
std::shared_ptr<Op> CommunicatorImpl::make_reduce(const OpDescriptor& descriptor,
                                                  const ReduceArgs& args) {
  auto self = shared_from_this();
  if (size_ == 1) return make_lone_reduce(self, descriptor, args);
  if (layout_.node_count() > 1) return make_internode_reduce(self, descriptor, args);
  if (args.count * args.size <= std::min(small_limit(team_->size()), team_->slot_bytes())) {
    return make_small_reduce(self, descriptor, args);
  }
  return make_staged_reduce(self, descriptor, args);
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
  return submit(make_reduce(describe(OpKind::kBarrier, args.dtype, RedOp::kSum, -1, 0), args),
                options);
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
