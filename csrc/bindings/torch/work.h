// SPDX-License-Identifier: Apache-2.0
//
// Work: an operation in flight, as torch wants to see it.
//
// Life of one: the backend makes it, lets it take the tensors (read, write, update), starts the
// engine's request on their memory and hands both over with start(). The engine may need the memory
// after the person has dropped the Work, so the destructor passes the tensors on to the request.
//
// A blocking 8-byte all_reduce goes through here, so on that road there is one allocation (this
// object) and no callback, Future, lock or text.
#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "bindings/torch/group.h"
#include "hfreduce/communicator.h"

namespace hfreduce::adapter {

class Work final : public c10d::Work {
 public:
  // `is_async` false promises that the caller waits at once. With a title the profiler shows the
  // operation, with its inputs.
  Work(std::shared_ptr<Group> group, c10d::OpType type, bool is_async, const char* title = nullptr,
       const std::optional<std::vector<at::Tensor>>& inputs = std::nullopt);
  ~Work() override;

  // Each returns a plain tensor for the engine, `tensor` itself where possible, and keeps it until
  // the engine is done.
  at::Tensor read(const at::Tensor& tensor);
  // A private copy whatever `tensor` is like, for memory that the operation also writes.
  at::Tensor read_copy(const at::Tensor& tensor);
  // The result goes back into `tensor` before anyone learns that the operation is done.
  at::Tensor write(const at::Tensor& tensor);
  at::Tensor update(const at::Tensor& tensor);
  // One for each of `tensors`, and their memory. If tensors share memory each gets its own, and
  // they are filled in order.
  std::vector<Bytes> write_each(const std::vector<at::Tensor>& tensors);
  void returns(const at::Tensor& tensor) { outputs_.push_back(tensor); }
  void returns(const std::vector<at::Tensor>& tensors);

  void start(RequestPtr request);
  // Starts as the sum of operations that run already.
  void start_joined(std::vector<c10::intrusive_ptr<Work>> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  bool wait(std::chrono::milliseconds timeout) override;
  // A CPU has no stream but the calling thread.
  void blockCurrentStream() override { wait(std::chrono::milliseconds::zero()); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override;

// NOLINTBEGIN(modernize-use-override)
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#endif
  // Newer torch only.
  std::chrono::milliseconds getTimeout() const;
  std::uint64_t getCompletionKey() const { return tail_.key; }
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
  // NOLINTEND(modernize-use-override)

 private:
  using Clock = std::chrono::steady_clock;

  // What is left to do when the engine is done, and what must live until then. It moves to the
  // request when the Work goes first.
  struct Tail {
    std::shared_ptr<Group> group;
    c10::SmallVector<at::Tensor, 2> held;
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // a person's tensor, our plain copy
    std::vector<c10::intrusive_ptr<Work>> parts;
    std::function<void()> end_profiler_range;
    std::uint64_t key = 0;
    std::uint64_t sequence = 0;
    c10d::OpType type = c10d::OpType::UNKNOWN;
    bool counted = false;  // in the group's pending operations
    bool timed = false;
    Clock::time_point started;
    Clock::time_point finished;
    ff::Status failure;  // to deliver; the engine's own outcome stands in the request

    // Puts the results where the person expects them.
    void deliver(const ff::Status& status);
    // Tells whoever wants to know, and lets go of the tensors. May need the GIL.
    void report(const ff::Status& status);
  };
  enum class Stage : std::uint8_t { kRunning, kDelivering, kDelivered };

  // Delivers once and returns when that has happened, whichever thread does it. The request must be
  // done. Never waits for the GIL, so it may be called with it.
  void finish();
  // Of an operation that is done.
  ff::Status outcome() const;
  // With the facts that every error about this operation carries.
  ff::Status explained(ff::Status status) const;
  void complete(const c10::intrusive_ptr<c10::ivalue::Future>& future, bool as_result);
  c10::intrusive_ptr<c10::ivalue::Future> make_future(bool as_result);

  RequestPtr request_;
  c10::SmallVector<at::Tensor, 1> outputs_;
  Tail tail_;
  const bool is_async_;
  std::atomic<Stage> stage_{Stage::kRunning};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10::ivalue::Future> result_future_;
};

}  // namespace hfreduce::adapter
