// SPDX-License-Identifier: Apache-2.0
//
// Segment: a piece of shared memory without a name. It is a memfd whose descriptor is handed over a
// Unix socket, so nothing ever stands in /dev/shm, its size limit does not apply, and the kernel
// frees the memory when the last process that maps it is gone, however it went.
// (docs/decisions/0001-memfd-segments.md)
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hfreduce {

class Segment {
 public:
  // New, zeroed. Pages take memory when they are first touched.
  static ff::Result<std::shared_ptr<Segment>> create(const char* label, std::size_t bytes);
  // Maps what another process created. Refused unless it is a sealed memfd of just `bytes`: a file
  // that could shrink under the mapping would kill this process with SIGBUS.
  static ff::Result<std::shared_ptr<Segment>> map(ff::UniqueFd fd, std::size_t bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool contains(const void* at, std::size_t bytes) const;
  // The descriptor, until it is dropped: a mapping needs none.
  int fd() const { return fd_.get(); }
  void drop_fd() { fd_.reset(); }

 private:
  Segment(ff::UniqueFd fd, std::byte* data, std::size_t size);
  ff::UniqueFd fd_;
  std::byte* data_;
  std::size_t size_;
};

}  // namespace hfreduce
