// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors, "broadcast", "tensor");
  check_root(options.rootRank, options.rootTensor, size_, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  if (rank_ == root) {
    check_dense(tensor, "broadcast", "tensor");
  } else {
    check_writable(tensor, "broadcast", "tensor");
  }
  const DType dtype = movable_dtype(tensor, "broadcast");
  auto work = new_work(c10d::OpType::BROADCAST, Title::kBroadcast, options.asyncOp, tensors);
  const at::Tensor data = rank_ == root ? work->read(tensor) : work->write(tensor);
  work->returns(tensor);
  // The engine only reads at the root.
  void* const memory =
      rank_ == root ? const_cast<void*>(data.const_data_ptr()) : data.mutable_data_ptr();
  return launch(std::move(work),
                communicator().broadcast(memory, static_cast<std::size_t>(data.numel()), dtype,
                                         root, op_options(options)));
}

}  // namespace hfreduce::adapter
