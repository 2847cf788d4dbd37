// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <functional>
#include <string>

namespace hfreduce {
namespace {

using ff::Code;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

ff::Result<std::byte*> map_shared(int fd, std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (at == MAP_FAILED) {
    return ff::fail(
        ff::errno_status("map " + std::to_string(bytes) + " bytes of shared memory", errno));
  }
  ::madvise(at, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(at);
}

}  // namespace

Segment::Segment(ff::UniqueFd fd, std::byte* data, std::size_t size)
    : fd_(std::move(fd)), data_(data), size_(size) {}

Segment::~Segment() { ::munmap(data_, size_); }

ff::Result<std::shared_ptr<Segment>> Segment::create(const char* label, std::size_t bytes) {
  ff::UniqueFd fd(::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  std::string what = "create " + std::to_string(bytes) + " bytes of shared memory";
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return ff::fail(ff::errno_status(what, errno));
  }
  auto data = map_shared(fd.get(), bytes);
  if (!data) return ff::fail(data.error());
  return std::shared_ptr<Segment>(new Segment(std::move(fd), *data, bytes));
}

ff::Result<std::shared_ptr<Segment>> Segment::map(ff::UniqueFd fd, std::size_t bytes) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ff::fail(ff::errno_status("examine a segment", errno));
  if (static_cast<std::size_t>(info.st_size) != bytes ||
      (::fcntl(fd.get(), F_GET_SEALS) & kSeals) != kSeals) {
    return ff::fail(Code::kRefused, "a peer's segment is not a sealed memfd of " +
                                        std::to_string(bytes) + " bytes");
  }
  auto data = map_shared(fd.get(), bytes);
  if (!data) return ff::fail(data.error());
  return std::shared_ptr<Segment>(new Segment(std::move(fd), *data, bytes));
}

bool Segment::contains(const void* at, std::size_t bytes) const {
  const auto* first = static_cast<const std::byte*>(at);
  std::less_equal<const std::byte*> not_after;
  return not_after(data_, first) && bytes <= size_ && not_after(first, data_ + (size_ - bytes));
}

}  // namespace hfreduce
