// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/joined_request.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace hfreduce::adapter {

bool JoinedRequest::done() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const RequestPtr& part) { return part->done(); });
}

ff::Status JoinedRequest::status() const {
  for (const RequestPtr& part : parts_) {
    if (!part->done()) continue;
    if (ff::Status status = part->status(); !status.ok()) return status;
  }
  return {};
}

template <class WaitForPart>
ff::Status JoinedRequest::wait_for_all(std::chrono::milliseconds timeout,
                                       const WaitForPart& wait_for_part) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + timeout;
  ff::Status first;
  for (const RequestPtr& part : parts_) {
    std::chrono::milliseconds left = timeout;
    if (timeout > std::chrono::milliseconds::zero()) {
      // Zero would mean the part's own timeout.
      left = std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()),
                      std::chrono::milliseconds(1));
    }
    ff::Status status = wait_for_part(*part, left);
    if (status.ok()) continue;
    if (!part->done()) return status;  // the wait ended, not the operation
    if (first.ok()) first = std::move(status);
  }
  return first;
}

ff::Status JoinedRequest::wait(std::chrono::milliseconds timeout) {
  return wait_for_all(
      timeout, [](Request& part, std::chrono::milliseconds left) { return part.wait(left); });
}

ff::Status JoinedRequest::wait(std::chrono::milliseconds timeout,
                               const std::function<bool()>& interrupted) {
  return wait_for_all(timeout, [&interrupted](Request& part, std::chrono::milliseconds left) {
    return part.wait(left, interrupted);
  });
}

void JoinedRequest::on_done(std::function<void()> callback) {
  if (parts_.empty()) {
    callback();
    return;
  }
  struct Countdown {
    std::atomic<std::size_t> left;
    std::function<void()> callback;
  };
  auto countdown = std::make_shared<Countdown>();
  countdown->left = parts_.size();
  countdown->callback = std::move(callback);
  for (const RequestPtr& part : parts_) {
    part->on_done([countdown] {
      if (countdown->left.fetch_sub(1, std::memory_order_acq_rel) == 1) countdown->callback();
    });
  }
}

}  // namespace hfreduce::adapter
