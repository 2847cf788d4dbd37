// SPDX-License-Identifier: Apache-2.0
//
// Callbacks: the threads that run what is to be done when an operation is done.
//
// One thread runs callbacks in order. A callback may wait for another one that stands behind it: a
// hook starts an operation and waits for its Future, which a callback completes. So a callback that
// was asked for by a callback is run by a spare thread at once, and any other when the thread whose
// turn it is has been busy for long.
//
// All threads are detached: one may be waiting for Python's interpreter lock while the thread that
// stops the engine holds it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "runtime/clock.h"

namespace hfreduce {

struct Callback {
  std::function<void()> body;
  bool nested = false;  // asked for by a callback, which may be waiting for it
};

class Callbacks : public std::enable_shared_from_this<Callbacks> {
 public:
  // Whether the calling thread is running a callback.
  static bool running();

  void post(Callback callback);
  // Threads end once they have run what has been posted.
  void stop();

 private:
  struct Entry {
    std::function<void()> body;
    ff::TimePoint due;  // when a spare thread may take it
  };

  void start_thread(bool spare);
  void run_first();
  void run_spare();
  void run_one(std::unique_lock<std::mutex>* lock, std::deque<Entry>::iterator entry);
  void watch_queue();

  std::mutex mu_;
  std::condition_variable first_changed_;
  std::condition_variable spare_changed_;
  std::deque<Entry> queue_;
  bool first_started_ = false;
  bool first_idle_ = false;
  int spares_ = 0;
  int spares_idle_ = 0;
  bool stopping_ = false;
};

}  // namespace hfreduce
