// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace ff {

// Orders all earlier stores before all later loads. ThreadSanitizer does not know fences; an
// exchange on a word of its own orders as much on every machine that it runs on.
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<int> word{0};
  word.exchange(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace ff
