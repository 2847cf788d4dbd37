// SPDX-License-Identifier: Apache-2.0
//
// CommunicatorImpl: the queue of a group's operations, and its failure.
//
// Locks, in the order in which they may be taken:
//   step_mu_     whoever holds it drives: operations, slots and the team's steps are touched under
//   it queue_mu_    newly started operations, the log of calls, the cause of failure; never held
//   long (the locks of Inbox and Conn are leaves)
// Frames arrive with the receive lock of a Conn held, which comes before all of these; so what they
// trigger is only noted (notice_), and done by the next poll().
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "hfreduce/communicator.h"
#include "hfreduce/engine/call_log.h"
#include "hfreduce/engine/diagnosis.h"
#include "hfreduce/engine/engine.h"
#include "hfreduce/engine/layout.h"
#include "hfreduce/engine/op.h"
#include "hfreduce/shm/team.h"
#include "hfreduce/topology/tree.h"
#include "hfreduce/wire/inbox.h"

namespace hfreduce {

struct ReduceArgs;

// What is known of one rank.
struct Member {
  ProcessId id{};
  std::shared_ptr<Peer> peer;  // null for this rank itself
  // Connections to it, none for this rank itself. Control frames take the first.
  std::vector<Conn*> lanes;
  std::string host;
  std::int64_t pid = 0;
  std::string path;
};

class CommunicatorImpl final : public Communicator,
                               public Group,
                               public GroupPort,
                               public std::enable_shared_from_this<CommunicatorImpl> {
 public:
  CommunicatorImpl(std::shared_ptr<Engine> engine, std::uint64_t group, int rank, int size,
                   Options options);

  // Start-up, in this order (bootstrap.cc). Ids first: frames may come as soon as the group is
  // known.
  void set_ids(std::vector<Member> members) { members_ = std::move(members); }
  // The segment that the lowest rank of this node has made for the group, once it has come.
  std::optional<ff::UniqueFd> wait_for_group_segment(ff::TimePoint deadline);
  // A member was lost before the group could open; OK if not.
  ff::Status early_loss();
  // Ids stay as they are: frames are being checked against them already.
  void open(const std::vector<Member>& members, Layout layout, std::unique_ptr<Team> team,
            std::size_t slot_bytes);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const Options& options() const override { return options_; }
  std::vector<RankInfo> ranks() const override;
  RequestPtr allreduce(const void* in, void* out, std::size_t count, DType dtype,
                       Reduction reduction, OpOptions options) override;
  RequestPtr reduce(const void* in, void* out, std::size_t count, DType dtype, Reduction reduction,
                    int root, OpOptions options) override;
  RequestPtr broadcast(void* data, std::size_t count, DType dtype, int root,
                       OpOptions options) override;
  RequestPtr allgather(ConstBytes in, std::vector<Bytes> out, DType dtype,
                       OpOptions options) override;
  RequestPtr reduce_scatter(std::vector<ConstBytes> in, Bytes out, DType dtype, Reduction reduction,
                            OpOptions options) override;
  RequestPtr alltoall(std::vector<ConstBytes> in, std::vector<Bytes> out, DType dtype,
                      OpOptions options) override;
  RequestPtr gather(ConstBytes in, std::vector<Bytes> out, DType dtype, int root,
                    OpOptions options) override;
  RequestPtr scatter(std::vector<ConstBytes> in, Bytes out, DType dtype, int root,
                     OpOptions options) override;
  RequestPtr barrier(OpOptions options) override;
  RequestPtr send(ConstBytes data, int to, std::uint32_t tag, OpOptions options) override;
  RequestPtr recv(Bytes data, int from, std::uint32_t tag, OpOptions options) override;
  RequestPtr recv_any(Bytes data, std::uint32_t tag, OpOptions options) override;
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  std::uint64_t sequence() const override;
  ff::Status health() const override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  void abort(const std::string& why) override;
  void shutdown() override;
  // After shutdown(): the engine and the wire forget the group.
  void leave();

  // Group
  bool poll() override;
  bool busy() const override {
    return pending_.load(std::memory_order_relaxed) > 0 || noticed_.load(std::memory_order_relaxed);
  }
  bool networked() const override {
    return networked_ || message_count_.load(std::memory_order_relaxed) > 0;
  }
  void tick(ff::TimePoint now) override;
  ff::Status loss_of(int global_rank) const override;

  // GroupPort
  bool is_member(int rank, const Peer& peer) const override;
  Sink bulk_begins(Conn* conn, const FrameHeader& header) override;
  void bulk_arrived(const FrameHeader& header, Sink sink) override;
  void control_arrived(const FrameHeader& header, std::string payload,
                       std::vector<ff::UniqueFd> fds) override;
  void peer_lost(const Peer& peer, const ff::Status& why) override;

  // For operations.
  Engine& engine() { return *engine_; }
  Team* team() { return team_.get(); }
  Inbox& inbox() { return *inbox_; }
  const Layout& layout() const { return layout_; }
  const DoubleTree& trees() const { return trees_; }
  // Bytes of a slot of any node's team; all have the same.
  std::size_t slot_bytes() const { return slot_bytes_; }
  int node() const { return layout_.node_of[rank_]; }
  int local_rank() const { return layout_.local_of[rank_]; }
  // Ranks of this node.
  const std::vector<int>& mates() const { return layout_.nodes[node()]; }
  // The next `count` steps of the team belong to the caller.
  std::uint64_t take_steps(std::uint64_t count);
  // Memory for the running collective, as large as any has asked for so far.
  std::byte* scratch(std::size_t bytes);
  // To be called after writing shared memory that mates may wait for.
  void ring_mates() const;
  // An operation has found out that `rank` called something else. The group will fail with a table
  // of calls, or with `what` where the calls are alike.
  void note_mismatch(int rank, const std::string& what);
  // The same of a mate, who has published `step` of the team for another call.
  void note_other_call(int mate, std::uint64_t step);
  // The mate's process segment, or null and 0.
  std::byte* arena_of(int rank) const;
  std::size_t arena_size_of(int rank) const;

 private:
  struct Notice {
    std::optional<ff::Status> failure;  // another rank has failed, or is lost
    int mismatch_with = -1;
    std::string mismatch;
    std::vector<std::pair<int, CallReport>> reports;  // answers to queries
  };

  RequestPtr submit(std::shared_ptr<Op> op, OpOptions options);
  RequestPtr reject(OpKind kind, std::string why);
  RequestPtr start_reduce(OpKind kind, const void* in, void* out, std::size_t count, DType dtype,
                          Reduction reduction, int root, OpOptions options);
  std::shared_ptr<Op> make_reduce(const OpDescriptor& descriptor, const ReduceArgs& args);
  ff::Status check_root(int root) const;
  void act_on_notice();
  void start_diagnosis(Diagnosis::Why why, const Op& op);
  void finish_diagnosis();
  void fail(const ff::Status& cause);
  void tell_peers(const ff::Status& cause);
  void send_control(int rank, FrameType type, const std::string& payload);
  void send_frame(Conn& conn, FrameType type, const std::string& payload) const;
  void notice_failure(ff::Status cause);
  void take_incoming();
  bool advance_head();
  bool advance_messages();
  void settle(const std::shared_ptr<Op>& op, ff::Status status);
  void query(int rank);
  bool any_overdue() const;
  std::string silence_of(int rank) const;
  std::vector<int> current_blockers() const;
  ff::Status describe_loss(int rank, const ff::Status& why) const;
  ff::Status::Context facts_of(int rank) const;
  std::string name_rank(int rank) const;
  int global_rank(int rank) const;

  const std::shared_ptr<Engine> engine_;
  const std::uint64_t group_;
  const int rank_;
  const int size_;
  Options options_;
  std::vector<Member> members_;
  Layout layout_;
  DoubleTree trees_;
  std::size_t slot_bytes_ = 0;
  std::unique_ptr<Team> team_;
  const std::unique_ptr<Inbox> inbox_;
  std::vector<const Peer*> mate_peers_;
  bool networked_ = false;

  std::mutex step_mu_;
  std::deque<std::shared_ptr<Op>> active_;     // collectives, in order; the first one runs
  std::vector<std::shared_ptr<Op>> messages_;  // send and recv, all at once
  std::string mismatch_text_;
  bool head_begun_ = false;
  std::uint64_t next_step_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
  std::optional<Diagnosis> diagnosis_;
  ff::TimePoint head_since_{};

  mutable std::mutex queue_mu_;
  std::vector<std::shared_ptr<Op>> incoming_;
  std::uint64_t sequence_ = 0;
  std::uint32_t signature_ = 0;
  CallLog calls_;
  ff::Status failure_;
  std::chrono::milliseconds timeout_;
  std::vector<int> waiting_for_;  // as of the last tick, for answers to queries

  std::mutex notice_mu_;
  Notice notice_;
  std::vector<std::size_t> goodbyes_;  // of each rank: one a lane when it leaves
  std::deque<ff::UniqueFd> group_segments_;
  std::condition_variable group_segment_came_;

  std::atomic<int> pending_{0};
  std::atomic<int> message_count_{0};
  std::atomic<bool> incoming_any_{false};
  std::atomic<bool> noticed_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> opened_{false};
  std::atomic<bool> shut_down_{false};
};

// "float32", "sum" ... and the count, as compared between ranks.
OpDescriptor describe(OpKind kind, DType dtype, RedOp redop, int root, std::uint64_t count);

}  // namespace hfreduce
