// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/shm/arena.h"

#include <algorithm>
#include <iterator>

namespace hfreduce {
namespace {
constexpr std::size_t kAlign = 64;
}

Arena::Arena(std::shared_ptr<Segment> segment, std::size_t offset)
    : segment_(std::move(segment)), offset_(offset) {
  if (segment_->size() > offset) free_[offset] = segment_->size() - offset;
}

// First fit: blocks are few and long-lived (buckets, parameter shards), so that neither speed nor
// fragmentation asks for more.
std::shared_ptr<void> Arena::allocate(std::size_t bytes) {
  if (bytes > segment_->size()) return nullptr;
  bytes = std::max(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
  std::lock_guard lock(mu_);
  auto found = std::find_if(free_.begin(), free_.end(),
                            [&](const auto& block) { return block.second >= bytes; });
  if (found == free_.end()) return nullptr;
  const std::size_t at = found->first;  // no binding: lambdas cannot capture those in clang 14
  const std::size_t size = found->second;
  free_.erase(found);
  if (size > bytes) free_[at + bytes] = size - bytes;
  in_use_ += bytes;
  auto self = shared_from_this();
  return {segment_->data() + at, [self, at, bytes](void*) { self->release(at, bytes); }};
}

void Arena::release(std::size_t offset, std::size_t bytes) {
  std::lock_guard lock(mu_);
  in_use_ -= bytes;
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && offset + bytes == after->first) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

std::optional<std::size_t> Arena::offset_of(const void* data, std::size_t bytes) const {
  if (!segment_->contains(data, bytes)) return std::nullopt;
  auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(data) - segment_->data());
  if (offset < offset_) return std::nullopt;
  return offset;
}

std::size_t Arena::bytes_in_use() const {
  std::lock_guard lock(mu_);
  return in_use_;
}

}  // namespace hfreduce
