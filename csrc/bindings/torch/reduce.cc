// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "reduce", "tensor");
  check_writable(tensor, "reduce", "tensor");
  check_root(options.rootRank, options.rootTensor, size_, "reduce");
  const DType dtype = reducible_dtype(tensor, "reduce");
  const Reduction reduction = to_reduction(options.reduceOp);
  const int root = static_cast<int>(options.rootRank);
  auto work = new_work(c10d::OpType::REDUCE, Title::kReduce, options.asyncOp, tensors);
  // The others' tensors stay as they are.
  const at::Tensor data = rank_ == root ? work->update(tensor) : work->read(tensor);
  work->returns(tensor);
  void* const out = rank_ == root ? data.mutable_data_ptr() : nullptr;
  const void* const in = data.const_data_ptr();
  return launch(std::move(work),
                communicator().reduce(in, out, static_cast<std::size_t>(data.numel()), dtype,
                                      reduction, root, op_options(options)));
}

}  // namespace hfreduce::adapter
