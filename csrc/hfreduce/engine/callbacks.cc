// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/callbacks.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace hfreduce {
namespace {

// How long a callback waits for its turn before a spare thread takes it out of turn.
constexpr std::chrono::milliseconds kLong{50};
// More callbacks than this that wait for each other are not served.
constexpr int kMostSpares = 32;

thread_local bool t_running = false;

}  // namespace

bool Callbacks::running() { return t_running; }

void Callbacks::post(Callback callback) {
  const ff::TimePoint now = ff::TimePoint::clock::now();
  const std::lock_guard lock(mu_);
  queue_.push_back({std::move(callback.body), callback.nested ? now : now + kLong});
  if (!first_started_) {
    first_started_ = true;
    start_thread(false);
  } else if (first_idle_) {
    first_changed_.notify_one();
  } else {
    watch_queue();
  }
}

void Callbacks::stop() {
  const std::lock_guard lock(mu_);
  stopping_ = true;
  first_changed_.notify_all();
  spare_changed_.notify_all();
}

void Callbacks::start_thread(bool spare) {
  std::thread([self = shared_from_this(), spare] {
    ::pthread_setname_np(::pthread_self(), "hfr-callbacks");
    t_running = true;
    if (spare) {
      self->run_spare();
    } else {
      self->run_first();
    }
  }).detach();
}

void Callbacks::run_first() {
  std::unique_lock lock(mu_);
  for (;;) {
    first_idle_ = true;
    first_changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    first_idle_ = false;
    if (queue_.empty()) return;
    run_one(&lock, queue_.begin());
  }
}

void Callbacks::run_spare() {
  std::unique_lock lock(mu_);
  for (;;) {
    const auto by_due = [](const Entry& a, const Entry& b) { return a.due < b.due; };
    const auto next = std::min_element(queue_.begin(), queue_.end(), by_due);
    if (next != queue_.end() && next->due <= ff::TimePoint::clock::now()) {
      run_one(&lock, next);
      continue;
    }
    if (next == queue_.end() && stopping_) break;
    ++spares_idle_;
    if (next == queue_.end()) {
      spare_changed_.wait(lock);
    } else {
      const ff::TimePoint due = next->due;
      spare_changed_.wait_until(lock, due);
    }
    --spares_idle_;
  }
  --spares_;
}

void Callbacks::run_one(std::unique_lock<std::mutex>* lock, std::deque<Entry>::iterator entry) {
  std::function<void()> body = std::move(entry->body);
  queue_.erase(entry);
  if (!queue_.empty()) watch_queue();
  lock->unlock();
  body();
  body = nullptr;
  lock->lock();
}

// Sees to it that somebody looks at the queue while the threads that are busy are.
void Callbacks::watch_queue() {
  if (spares_idle_ > 0) {
    spare_changed_.notify_one();
  } else if (spares_ < kMostSpares) {
    ++spares_;
    start_thread(true);
  }
}

}  // namespace hfreduce
