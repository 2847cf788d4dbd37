// SPDX-License-Identifier: Apache-2.0
#include "runtime/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace ff {

void fill_random(void* out, std::size_t size) {
  auto* at = static_cast<std::uint8_t*>(out);
  while (size > 0) {
    ssize_t got = ::getrandom(at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) std::abort();
    at += got;
    size -= static_cast<std::size_t>(got);
  }
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  fill_random(&value, sizeof(value));
  return value;
}

}  // namespace ff
