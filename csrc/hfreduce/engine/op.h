// SPDX-License-Identifier: Apache-2.0
//
// Op: an operation as a state machine. advance() is called, under the communicator's step lock, by
// whichever thread drives; it does what can be done now and never waits.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "hfreduce/communicator.h"
#include "hfreduce/engine/engine.h"
#include "hfreduce/wire/frame.h"
#include "runtime/clock.h"

namespace hfreduce {

class CommunicatorImpl;

enum class Advance {
  kDone,
  kMoved,    // something was done; more may be possible at once
  kBlocked,  // nothing to do before another rank acts
};

class Op : public Request, public std::enable_shared_from_this<Op> {
 public:
  Op(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor);

  bool done() const override { return flag_.done(); }
  ff::Status wait(std::chrono::milliseconds timeout) override;
  ff::Status wait(std::chrono::milliseconds timeout,
                  const std::function<bool()>& interrupted) override;
  ff::Status status() const override;
  void on_done(std::function<void()> callback) override;
  OpKind kind() const override { return descriptor_.kind; }
  std::uint64_t sequence() const override { return sequence_; }
  int source() const override { return -1; }

  const OpDescriptor& descriptor() const { return descriptor_; }
  std::uint32_t signature() const { return signature_; }
  ff::TimePoint deadline() const { return deadline_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  // "allreduce #17"
  std::string title() const;

  // Below: called by the communicator, under its step lock.

  // The operation's turn has come.
  virtual void begin() {}
  virtual Advance advance() = 0;
  // Lets go of the caller's memory: after this, nothing reads or writes it.
  virtual void cancel() {}
  // The ranks that it cannot go on without.
  virtual void blockers(std::vector<int>* out) const = 0;
  void set_place(std::uint64_t sequence, std::uint32_t signature, ff::TimePoint deadline,
                 std::chrono::milliseconds timeout);
  void finish(ff::Status status);

 protected:
  CommunicatorImpl& comm() const { return *comm_; }

 private:
  ff::Status wait_until(std::chrono::milliseconds timeout,
                        const std::function<bool()>* interrupted);

  const std::shared_ptr<CommunicatorImpl> comm_;
  const OpDescriptor descriptor_;
  std::uint64_t sequence_ = 0;
  std::uint32_t signature_ = 0;
  ff::TimePoint deadline_{};
  std::chrono::milliseconds timeout_{0};
  DoneFlag flag_;
  ff::Status status_;  // written before flag_ is set
  std::mutex callbacks_mu_;
  std::vector<Callback> callbacks_;
};

// An operation that ended before it began.
RequestPtr failed_request(std::shared_ptr<CommunicatorImpl> comm, OpKind kind, ff::Status status);

}  // namespace hfreduce
