// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {

WorkPtr Backend::scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ScatterOptions& options) {
  constexpr const char* kOp = "scatter";
  const at::Tensor& output = only(outputs, kOp, "tensor");
  check_writable(output, kOp, "tensor");
  check_root(options.rootRank, 0, size_, kOp);
  const int root = static_cast<int>(options.rootRank);
  const DType dtype = movable_dtype(output, kOp);
  if (rank_ == root) {
    if (inputs.size() != 1) {
      throw_invalid(kOp, inputs.size(),
                    " input lists were given; pass exactly one at the source rank");
    }
    check_count(inputs.front().size(), size_, kOp, "scatter_list");
    for (const at::Tensor& input : inputs.front()) {
      check_dense(input, kOp, "scatter_list");
      check_same_dtype(output, input, kOp, "scatter_list");
    }
    const std::int64_t own = inputs.front()[static_cast<std::size_t>(rank_)].numel();
    if (own != output.numel()) {
      throw_invalid(kOp, "scatter_list[", rank_, "] has ", own,
                    " elements, but this rank receives ", output.numel(),
                    "; both must be of one size");
    }
  } else if (!inputs.empty() && !inputs.front().empty()) {
    throw_invalid(kOp, "scatter_list was given on rank ", rank_, "; only the source, rank ", root,
                  ", has one");
  }
  auto work = new_work(c10d::OpType::SCATTER, Title::kScatter, options.asyncOp,
                       rank_ == root ? inputs.front() : outputs);
  const Bytes out = writable(work->write(output));
  std::vector<ConstBytes> pieces;
  if (rank_ == root) {
    for (const at::Tensor& input : inputs.front()) {
      const bool shares = overlap(readable(input), as_const(out));
      pieces.push_back(readable(shares ? work->read_copy(input) : work->read(input)));
    }
  }
  work->returns(output);
  return launch(std::move(work),
                communicator().scatter(std::move(pieces), out, dtype, root, op_options(options)));
}

}  // namespace hfreduce::adapter
