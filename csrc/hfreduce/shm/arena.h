// SPDX-License-Identifier: Apache-2.0
//
// Arena: memory of this process that all node-mates have mapped, handed out in blocks. Collectives
// on such blocks read and write them in place.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "hfreduce/shm/segment.h"

namespace hfreduce {

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Serves [offset, segment->size()) of `segment`.
  Arena(std::shared_ptr<Segment> segment, std::size_t offset);

  // Aligned to 64 bytes; null when no free block is large enough. The block returns to the arena
  // with the last reference, and holds the memory mapped until then.
  std::shared_ptr<void> allocate(std::size_t bytes);
  // Offset of [data, data + bytes) in the segment, if it lies in the arena.
  std::optional<std::size_t> offset_of(const void* data, std::size_t bytes) const;
  std::size_t bytes_in_use() const;

 private:
  void release(std::size_t offset, std::size_t bytes);

  const std::shared_ptr<Segment> segment_;
  const std::size_t offset_;
  mutable std::mutex mu_;
  std::map<std::size_t, std::size_t> free_;  // offset -> bytes; neighbours are merged
  std::size_t in_use_ = 0;
};

}  // namespace hfreduce
