// SPDX-License-Identifier: Apache-2.0
//
// Backend: torch's process-group backend over a Communicator. One operation, one file: see
// all_reduce.cc and its neighbours. Old names are overridden throughout; torch forwards its newer
// ones (all_gather_single and so on) to them.
//
// torch calls every operation without the GIL, constructor and destructor with it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <unordered_map>
#include <vector>

#include "bindings/torch/group.h"
#include "bindings/torch/options.h"
#include "bindings/torch/store.h"
#include "bindings/torch/work.h"
#include "hfreduce/communicator.h"

namespace hfreduce::adapter {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;

class Backend : public c10d::Backend {
 public:
  using Base = c10d::Backend;
  using BaseOptions = c10::intrusive_ptr<Base::Options>;

  // Meets the other ranks on `store`. `name` is the one under which the backend is registered; the
  // profiler shows it.
  Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
          const c10::intrusive_ptr<BackendOptions>& options, std::string name);
  ~Backend() override;

  const std::string getBackendName() const override { return name_; }
  BaseOptions getBackendOptions() override;
  std::vector<RankInfo> rank_infos() { return group_->communicator().ranks(); }

  // Reductions.
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;

  // Moves.
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // Meetings.
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // Groups made from this one.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Base> split(const c10::intrusive_ptr<c10d::Store>& store,
                                 const std::vector<int>& ranks,
                                 const BaseOptions& options) override;
  c10::intrusive_ptr<Base> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                 const BaseOptions& options, const int& rank,
                                 const int& size) override;
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<Base> shrink(const std::vector<std::int64_t>& ranks_to_exclude, int flags,
                                  const BaseOptions& options) override;

  // Memory that the ranks of a node share.
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  // Health.
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;
  std::uint64_t getSequenceNumberForGroup() override;
  void setSequenceNumberForGroup() override {}  // numbers start at 0 on every rank
  void enableCollectivesTiming() override;
  void registerOnCompletionHook(WorkHook&& hook) override;
  void waitForPendingWorks() override;

// NOLINTBEGIN(modernize-use-override)
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#endif
  // These override in a torch that has them, and are never called in one that has not.
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                             const c10d::GatherOptions& options);
  bool supportsAbortHooks() const { return true; }
  void registerAbortHook(std::int64_t id, AbortHook hook);
  void unregisterAbortHook(std::int64_t id);
  bool supportsCompletionHooks() const { return true; }
  void registerCompletionHook(std::int64_t id, CompletionHook hook);
  void unregisterCompletionHook(std::int64_t id);
  std::unordered_map<std::string, std::uint64_t> getMemoryStats();
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
  // NOLINTEND(modernize-use-override)

 private:
  Communicator& communicator() { return group_->communicator(); }
  c10::intrusive_ptr<Work> new_work(c10d::OpType type, Title title, bool is_async,
                                    const Tensors& inputs);
  // Starts `request` as `work`, or throws the reason why it could not be started.
  WorkPtr launch(c10::intrusive_ptr<Work> work, RequestPtr request);
  void check_peer(int peer, int tag, const char* op);
  RequestPtr all_gather_flat(Work& work, const at::Tensor& output, const at::Tensor& input,
                             OpOptions options);
  RequestPtr reduce_scatter_flat(Work& work, const at::Tensor& output, const at::Tensor& input,
                                 Reduction reduction, OpOptions options);
  c10::intrusive_ptr<Backend> child(c10::intrusive_ptr<c10d::Store> store, int rank,
                                    const std::vector<int>& ranks, const BaseOptions& options);

  const std::string name_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<BackendOptions> options_;
  std::vector<int> global_ranks_;  // of this group's ranks
  std::shared_ptr<Group> group_;

  std::atomic<std::uint64_t> tensor_allocations_{0};
  std::atomic<std::uint64_t> tensor_allocations_in_arena_{0};

  std::atomic<bool> is_coalescing_{false};
  std::mutex mutex_;  // of the fields below
  std::vector<c10::intrusive_ptr<Work>> coalesced_;
  std::shared_ptr<TorchStore> barrier_store_;  // with a connection of its own
  std::uint64_t monitored_barriers_ = 0;
};

// From torch's options of an operation: an unset timeout means the group's.
template <class Options>
OpOptions op_options(const Options& options) {
  OpOptions result;
  result.timeout = std::max(options.timeout, std::chrono::milliseconds::zero());
  result.will_wait = !options.asyncOp;
  return result;
}

}  // namespace hfreduce::adapter
