// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace hfreduce {
namespace {

// Indexed by descriptor, so that the child needs no lock: whoever held one is not there any more.
constexpr int kMaxFd = 16384;
std::array<std::atomic<bool>, kMaxFd> g_tracked;
std::atomic<int> g_highest{-1};
std::atomic<bool> g_forked{false};

void close_in_child() {
  g_forked.store(true, std::memory_order_relaxed);
  int highest = g_highest.load(std::memory_order_relaxed);
  for (int fd = 0; fd <= highest; ++fd) {
    if (g_tracked[fd].exchange(false, std::memory_order_relaxed)) ::close(fd);
  }
}

}  // namespace

void track_fd(int fd) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, &close_in_child);
  if (registered != 0 || fd < 0 || fd >= kMaxFd) return;
  g_tracked[fd].store(true, std::memory_order_relaxed);
  int highest = g_highest.load(std::memory_order_relaxed);
  while (fd > highest && !g_highest.compare_exchange_weak(highest, fd)) {
  }
}

void untrack_fd(int fd) {
  if (fd >= 0 && fd < kMaxFd) g_tracked[fd].store(false, std::memory_order_relaxed);
}

bool in_forked_child() { return g_forked.load(std::memory_order_relaxed); }

}  // namespace hfreduce
