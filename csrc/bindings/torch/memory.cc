// SPDX-License-Identifier: Apache-2.0
//
// Tensors in memory that the ranks of a node share: operations on them copy less. When the arena is
// full, or there is none, the memory is ordinary and everything works the same.
#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"

namespace hfreduce::adapter {
namespace {

using Memory = std::shared_ptr<void>;

}  // namespace

bool Backend::supportsTensorAlloc(c10::DeviceIndex) { return true; }

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  if (size < 0) {
    throw_invalid("allocate_tensor", "the size is ", size, "; use 0 or more");
  }
  if (!options.device().is_cpu()) {
    throw_invalid("allocate_tensor", "the device is ", options.device(),
                  "; this backend has CPU memory only");
  }
  group_->check_usable();
  tensor_allocations_.fetch_add(1, std::memory_order_relaxed);
  const std::size_t bytes = static_cast<std::size_t>(size) * options.dtype().itemsize();
  Memory memory = bytes == 0 ? nullptr : communicator().allocate(bytes);
  if (!memory) return at::empty({size}, options);
  tensor_allocations_in_arena_.fetch_add(1, std::memory_order_relaxed);
  void* const data = memory.get();
  return at::from_blob(
      data, {size}, [memory = std::move(memory)](void*) mutable { memory.reset(); }, options);
}

std::unordered_map<std::string, std::uint64_t> Backend::getMemoryStats() {
  return {{"tensor_allocations", tensor_allocations_.load()},
          {"tensor_allocations_in_arena", tensor_allocations_in_arena_.load()}};
}

}  // namespace hfreduce::adapter
