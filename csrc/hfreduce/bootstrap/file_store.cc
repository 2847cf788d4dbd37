// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/bootstrap/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <thread>

#include "base/result.h"
#include "base/unique_fd.h"
#include "runtime/clock.h"
#include "runtime/random.h"

namespace hfreduce {

using ff::Code;
using ff::Status;

Status FileStore::open(const std::string& folder, std::shared_ptr<Store>* out) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return ff::errno_status("open store " + folder, errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    return Status(Code::kInvalidArgument,
                  folder + " must be a folder of this user's that nobody else can write to");
  }
  *out = std::shared_ptr<Store>(new FileStore(folder));
  return {};
}

std::string FileStore::path_of(const std::string& key) const {
  std::string name = key;
  std::replace(name.begin(), name.end(), '/', '_');
  return folder_ + "/key_" + name;
}

// Written under another name first: a reader sees all of a value or none.
Status FileStore::set(const std::string& key, const std::string& value) {
  std::string path = path_of(key);
  std::string draft = path + ".draft" + std::to_string(ff::random_u64());
  ff::UniqueFd fd(::open(draft.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  if (!fd) return ff::errno_status("create " + draft, errno);
  std::size_t written = 0;
  while (written < value.size()) {
    ssize_t wrote = ::write(fd.get(), value.data() + written, value.size() - written);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return ff::errno_status("write " + draft, errno);
    written += static_cast<std::size_t>(wrote);
  }
  if (::rename(draft.c_str(), path.c_str()) != 0) return ff::errno_status("rename " + draft, errno);
  return {};
}

Status FileStore::get(const std::string& key, std::chrono::milliseconds timeout,
                      std::string* value) {
  std::string path = path_of(key);
  auto deadline = ff::saturating_add(ff::Clock::now(), timeout);
  for (;;) {
    ff::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd) {
      value->clear();
      std::array<char, 4096> buffer;
      for (;;) {
        ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ff::errno_status("read " + path, errno);
        if (got == 0) return {};
        value->append(buffer.data(), static_cast<std::size_t>(got));
      }
    }
    if (errno != ENOENT) return ff::errno_status("open " + path, errno);
    if (ff::Clock::now() >= deadline) {
      return Status(Code::kTimeout, "key " + key + " did not appear within " +
                                        std::to_string(timeout.count()) + " ms");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace hfreduce
