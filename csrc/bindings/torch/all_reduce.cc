// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/joined_request.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "all_reduce", "tensor");
  if (C10_UNLIKELY(tensor.is_sparse())) return allreduce_sparse(tensors, options);
  check_writable(tensor, "all_reduce", "tensor");
  const DType dtype = reducible_dtype(tensor, "all_reduce");
  const Reduction reduction = to_reduction(options.reduceOp);
  auto work = new_work(c10d::OpType::ALLREDUCE, Title::kAllReduce, options.asyncOp, tensors);
  const at::Tensor data = work->update(tensor);
  work->returns(tensor);
  void* const memory = data.mutable_data_ptr();
  return launch(std::move(work),
                communicator().allreduce(memory, memory, static_cast<std::size_t>(data.numel()),
                                         dtype, reduction, op_options(options)));
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                     const c10d::AllreduceCoalescedOptions& options) {
  for (const at::Tensor& tensor : tensors) {
    check_writable(tensor, "all_reduce_coalesced", "tensors");
    reducible_dtype(tensor, "all_reduce_coalesced");
  }
  const Reduction reduction = to_reduction(options.reduceOp);
  auto work =
      new_work(c10d::OpType::ALLREDUCE_COALESCED, Title::kAllReduce, options.asyncOp, tensors);
  std::vector<RequestPtr> parts;
  parts.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor data = work->update(tensor);
    void* const memory = data.mutable_data_ptr();
    parts.push_back(communicator().allreduce(memory, memory, static_cast<std::size_t>(data.numel()),
                                             reducible_dtype(tensor, "all_reduce_coalesced"),
                                             reduction, op_options(options)));
  }
  work->returns(tensors);
  return launch(std::move(work), std::make_shared<JoinedRequest>(std::move(parts)));
}

}  // namespace hfreduce::adapter
