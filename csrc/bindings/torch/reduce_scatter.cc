// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/joined_request.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {
namespace {

constexpr const char* kReduceScatterName = "reduce_scatter";

}  // namespace

WorkPtr Backend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, kReduceScatterName, "output");
  check_writable(output, kReduceScatterName, "output");
  if (inputs.size() != 1) {
    throw_invalid(kReduceScatterName, inputs.size(), " input lists were given; pass exactly one");
  }
  check_count(inputs.front().size(), size_, kReduceScatterName, "input_list");
  for (const at::Tensor& input : inputs.front()) {
    check_dense(input, kReduceScatterName, "input_list");
    check_same_dtype(output, input, kReduceScatterName, "input_list");
  }
  const std::int64_t own = inputs.front()[static_cast<std::size_t>(rank_)].numel();
  if (own != output.numel()) {
    throw_invalid(kReduceScatterName, "input_list[", rank_, "] has ", own,
                  " elements, but this rank receives ", output.numel(),
                  "; both must be of one size");
  }
  const DType dtype = reducible_dtype(output, kReduceScatterName);
  const Reduction reduction = to_reduction(options.reduceOp);
  auto work = new_work(c10d::OpType::REDUCE_SCATTER, Title::kReduceScatter, options.asyncOp,
                       inputs.front());
  const Bytes out = writable(work->write(output));
  std::vector<ConstBytes> pieces;
  pieces.reserve(inputs.front().size());
  for (const at::Tensor& input : inputs.front()) {
    const bool shares = overlap(readable(input), as_const(out));
    pieces.push_back(readable(shares ? work->read_copy(input) : work->read(input)));
  }
  work->returns(output);
  return launch(std::move(work), communicator().reduce_scatter(std::move(pieces), out, dtype,
                                                               reduction, op_options(options)));
}

RequestPtr Backend::reduce_scatter_flat(Work& work, const at::Tensor& output,
                                        const at::Tensor& input, Reduction reduction,
                                        OpOptions options) {
  const Bytes out = writable(work.write(output));
  const bool shares = overlap(readable(input), as_const(out));
  const at::Tensor in = shares ? work.read_copy(input) : work.read(input);
  return communicator().reduce_scatter(readable_pieces(in, size_), out,
                                       reducible_dtype(input, kReduceScatterName), reduction,
                                       options);
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) {
  Tensors outputs = {output};
  Tensors inputs = {input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size()) {
    throw_invalid(kReduceScatterName, outputs.size(), " outputs for ", inputs.size(),
                  " inputs; pass one for each");
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_dense(inputs[i], kReduceScatterName, "input");
    check_writable(outputs[i], kReduceScatterName, "output");
    check_same_dtype(inputs[i], outputs[i], kReduceScatterName, "output");
    if (inputs[i].numel() != outputs[i].numel() * size_) {
      throw_invalid(kReduceScatterName, "the input has ", inputs[i].numel(), " elements; make it ",
                    outputs[i].numel(), " (the output) x ", size_,
                    " (the ranks) = ", outputs[i].numel() * size_);
    }
    reducible_dtype(inputs[i], kReduceScatterName);
  }
  const Reduction reduction = to_reduction(options.reduceOp);
  const c10d::OpType type =
      inputs.size() == 1 ? c10d::OpType::_REDUCE_SCATTER_BASE : c10d::OpType::COALESCED;
  auto work = new_work(type, Title::kReduceScatter, options.asyncOp, inputs);
  work->returns(outputs);
  std::vector<RequestPtr> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    parts.push_back(
        reduce_scatter_flat(*work, outputs[i], inputs[i], reduction, op_options(options)));
  }
  if (parts.size() == 1) return launch(std::move(work), std::move(parts.front()));
  return launch(std::move(work), std::make_shared<JoinedRequest>(std::move(parts)));
}

}  // namespace hfreduce::adapter
