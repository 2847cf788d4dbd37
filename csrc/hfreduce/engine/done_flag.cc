// SPDX-License-Identifier: Apache-2.0
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "hfreduce/engine/engine.h"

namespace hfreduce {
namespace {

long futex(std::atomic<std::uint32_t>* word, int op, std::uint32_t value, const timespec* timeout) {
  static_assert(sizeof(*word) == sizeof(std::uint32_t));
  return ::syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

}  // namespace

void DoneFlag::set_done() {
  if (word_.exchange(kDone, std::memory_order_acq_rel) == kSlept) {
    futex(&word_, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

void DoneFlag::sleep(std::chrono::milliseconds longest) {
  std::uint32_t expected = kRunning;
  if (!word_.compare_exchange_strong(expected, kSlept) && expected == kDone) return;
  timespec timeout{};
  timeout.tv_sec = longest.count() / 1000;
  timeout.tv_nsec = longest.count() % 1000 * 1'000'000;
  futex(&word_, FUTEX_WAIT, kSlept, &timeout);
}

}  // namespace hfreduce
