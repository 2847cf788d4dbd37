// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {
namespace {

// The input may be a piece of the output.
ConstBytes take_input(Work& work, const at::Tensor& input, const std::vector<Bytes>& pieces) {
  for (const Bytes& piece : pieces) {
    if (overlap(readable(input), as_const(piece))) return readable(work.read_copy(input));
  }
  return readable(work.read(input));
}

}  // namespace

WorkPtr Backend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  constexpr const char* kOp = "gather";
  const at::Tensor& input = only(inputs, kOp, "tensor");
  check_dense(input, kOp, "tensor");
  check_root(options.rootRank, 0, size_, kOp);
  const int root = static_cast<int>(options.rootRank);
  const DType dtype = movable_dtype(input, kOp);
  if (rank_ == root) {
    if (outputs.size() != 1) {
      throw_invalid(kOp, outputs.size(),
                    " output lists were given; pass exactly one at the destination rank");
    }
    check_count(outputs.front().size(), size_, kOp, "gather_list");
    for (const at::Tensor& output : outputs.front()) {
      check_writable(output, kOp, "gather_list");
      check_same_dtype(input, output, kOp, "gather_list");
    }
    const std::int64_t own = outputs.front()[static_cast<std::size_t>(rank_)].numel();
    if (own != input.numel()) {
      throw_invalid(kOp, "gather_list[", rank_, "] has ", own,
                    " elements, but this rank contributes ", input.numel(),
                    "; both must be of one size");
    }
  } else if (!outputs.empty() && !outputs.front().empty()) {
    throw_invalid(kOp, "gather_list was given on rank ", rank_, "; only the destination, rank ",
                  root, ", has one");
  }
  auto work = new_work(c10d::OpType::GATHER, Title::kGather, options.asyncOp, inputs);
  std::vector<Bytes> pieces;
  if (rank_ == root) {
    pieces = work->write_each(outputs.front());
    work->returns(outputs.front());
  }
  const ConstBytes in = take_input(*work, input, pieces);
  return launch(std::move(work),
                communicator().gather(in, std::move(pieces), dtype, root, op_options(options)));
}

WorkPtr Backend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                    const c10d::GatherOptions& options) {
  constexpr const char* kOp = "gather_single";
  check_dense(input, kOp, "input");
  check_root(options.rootRank, 0, size_, kOp);
  const int root = static_cast<int>(options.rootRank);
  const DType dtype = movable_dtype(input, kOp);
  if (rank_ == root) {
    check_writable(output, kOp, "output");
    check_same_dtype(input, output, kOp, "output");
    if (output.numel() != input.numel() * size_) {
      throw_invalid(kOp, "the output has ", output.numel(), " elements; make it ", input.numel(),
                    " (the input) x ", size_, " (the ranks) = ", input.numel() * size_);
    }
  }
  auto work = new_work(c10d::OpType::GATHER, Title::kGather, options.asyncOp, {input});
  std::vector<Bytes> pieces;
  if (rank_ == root) {
    pieces = writable_pieces(work->write(output), size_);
    work->returns(output);
  }
  const ConstBytes in = take_input(*work, input, pieces);
  return launch(std::move(work),
                communicator().gather(in, std::move(pieces), dtype, root, op_options(options)));
}

}  // namespace hfreduce::adapter
