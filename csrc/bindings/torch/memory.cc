// SPDX-License-Identifier: Apache-2.0
//
// Tensors in memory that the ranks of a node share: operations on them copy less. When the arena is
// full, or there is none, the memory is ordinary and everything works the same.
#include <cstring>

#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"

namespace hfreduce::adapter {
namespace {

using Memory = std::shared_ptr<void>;

void release(void* memory) { delete static_cast<Memory*>(memory); }

c10::DataPtr to_data_ptr(Memory memory) {
  void* const data = memory.get();
  return {data, new Memory(std::move(memory)), &release, c10::Device(c10::kCPU)};
}

// Hands out arena memory for as long as anyone holds the group.
class ArenaAllocator final : public c10::Allocator {
 public:
  explicit ArenaAllocator(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes != 0) {
      if (Memory memory = group_->communicator().allocate(bytes)) {
        return to_data_ptr(std::move(memory));
      }
    }
    return c10::GetAllocator(c10::kCPU)->allocate(bytes);
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  const std::shared_ptr<Group> group_;
};

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

std::shared_ptr<c10::Allocator> Backend::getMemAllocator() {
  group_->check_usable();
  return std::make_shared<ArenaAllocator>(group_);
}

std::unordered_map<std::string, std::uint64_t> Backend::getMemoryStats() {
  return {{"tensor_allocations", tensor_allocations_.load()},
          {"tensor_allocations_in_arena", tensor_allocations_in_arena_.load()}};
}

}  // namespace hfreduce::adapter
