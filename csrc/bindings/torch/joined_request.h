// SPDX-License-Identifier: Apache-2.0
//
// Several requests as one: done when all are, failed when any is.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "hfreduce/communicator.h"

namespace hfreduce::adapter {

class JoinedRequest final : public Request {
 public:
  explicit JoinedRequest(std::vector<RequestPtr> parts) : parts_(std::move(parts)) {}

  bool done() const override;
  ff::Status wait(std::chrono::milliseconds timeout) override;
  ff::Status wait(std::chrono::milliseconds timeout,
                  const std::function<bool()>& interrupted) override;
  ff::Status status() const override;
  void on_done(std::function<void()> callback) override;
  OpKind kind() const override { return parts_.empty() ? OpKind::kNone : parts_.front()->kind(); }
  std::uint64_t sequence() const override {
    return parts_.empty() ? 0 : parts_.front()->sequence();
  }
  int source() const override { return -1; }

 private:
  template <class WaitForPart>
  ff::Status wait_for_all(std::chrono::milliseconds timeout, const WaitForPart& wait_for_part);

  const std::vector<RequestPtr> parts_;
};

}  // namespace hfreduce::adapter
