// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/communicator_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hfreduce/engine/fork_guard.h"
#include "hfreduce/engine/phase.h"
#include "runtime/fence.h"

namespace hfreduce {

using ff::Code;
using ff::Status;

OpDescriptor describe(OpKind kind, DType dtype, RedOp redop, int root, std::uint64_t count) {
  OpDescriptor op;
  op.kind = kind;
  op.dtype = dtype;
  op.redop = redop;
  op.root = root;
  op.count = count;
  return op;
}

CommunicatorImpl::CommunicatorImpl(std::shared_ptr<Engine> engine, std::uint64_t group, int rank,
                                   int size, Options options)
    : engine_(std::move(engine)),
      group_(group),
      rank_(rank),
      size_(size),
      options_(std::move(options)),
      inbox_(std::make_unique<Inbox>(
          group, rank, size,
          [this](int from, const std::string& what) { note_mismatch(from, what); })),
      timeout_(options_.timeout),
      goodbyes_(static_cast<std::size_t>(size), 0) {}

void CommunicatorImpl::open(const std::vector<Member>& members, Layout layout,
                            std::unique_ptr<Team> team, std::size_t slot_bytes) {
  for (int rank = 0; rank < size_; ++rank) {
    members_[rank].peer = members[rank].peer;
    members_[rank].path = members[rank].path;
    const Peer* peer = members[rank].peer.get();
    if (peer == nullptr) continue;
    if (peer->local) {
      members_[rank].lanes = {peer->local.get()};
    } else {
      for (int i = 0; i < options_.streams; ++i) {
        members_[rank].lanes.push_back(peer->streams[i].get());
      }
    }
  }
  layout_ = std::move(layout);
  team_ = std::move(team);
  trees_ = build_double_tree(layout_.zones);
  slot_bytes_ = slot_bytes;
  networked_ = layout_.node_count() > 1;
  std::vector<std::vector<Conn*>> lanes;
  for (const Member& member : members_) lanes.push_back(member.lanes);
  inbox_->connect(std::move(lanes));
  if (team_) {
    for (int mate : mates()) {
      if (mate != rank_) mate_peers_.push_back(members_[mate].peer.get());
    }
  }
  opened_.store(true, std::memory_order_release);
}

std::optional<ff::UniqueFd> CommunicatorImpl::wait_for_group_segment(ff::TimePoint deadline) {
  std::unique_lock lock(notice_mu_);
  bool came = group_segment_came_.wait_until(
      lock, deadline, [&] { return !group_segments_.empty() || notice_.failure.has_value(); });
  if (!came || group_segments_.empty()) return std::nullopt;
  ff::UniqueFd fd = std::move(group_segments_.front());
  group_segments_.pop_front();
  return fd;
}

std::byte* CommunicatorImpl::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset(new std::byte[bytes]);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

std::uint64_t CommunicatorImpl::take_steps(std::uint64_t count) {
  return std::exchange(next_step_, next_step_ + count);
}

void CommunicatorImpl::ring_mates() const {
  ff::full_fence();
  for (const Peer* peer : mate_peers_) peer->ring_if_armed();
}

std::byte* CommunicatorImpl::arena_of(int rank) const {
  const auto& peer = members_[rank].peer;
  return peer && peer->segment ? peer->segment->data() : nullptr;
}

std::size_t CommunicatorImpl::arena_size_of(int rank) const {
  const auto& peer = members_[rank].peer;
  return peer && peer->segment ? peer->segment->size() : 0;
}

std::shared_ptr<void> CommunicatorImpl::allocate(std::size_t bytes) {
  return team_ ? engine_->arena().allocate(bytes) : nullptr;
}

std::uint64_t CommunicatorImpl::sequence() const {
  std::lock_guard lock(queue_mu_);
  return sequence_;
}

void CommunicatorImpl::set_timeout(std::chrono::milliseconds timeout) {
  std::lock_guard lock(queue_mu_);
  timeout_ = timeout;
}

std::vector<RankInfo> CommunicatorImpl::ranks() const {
  std::vector<RankInfo> infos;
  for (int rank = 0; rank < size_; ++rank) {
    RankInfo info;
    info.rank = rank;
    info.global_rank = global_rank(rank);
    info.host = members_[rank].host;
    info.pid = members_[rank].pid;
    info.node = layout_.node_of[rank];
    info.local_rank = layout_.local_of[rank];
    info.path = members_[rank].path;
    infos.push_back(std::move(info));
  }
  return infos;
}

// ---- the queue ---------------------------------------------------------------------------------

RequestPtr CommunicatorImpl::submit(std::shared_ptr<Op> op, OpOptions options) {
  if (in_forked_child()) {
    return failed_request(
        shared_from_this(), op->kind(),
        Status(Code::kAborted,
               "this process was forked from one that uses hfreduce; start the child by spawn "
               "instead, or use no collectives in it"));
  }
  const bool message = op->kind() == OpKind::kSend || op->kind() == OpKind::kRecv;
  {
    std::unique_lock lock(queue_mu_);
    if (failed_.load(std::memory_order_relaxed)) {
      Status cause = failure_;
      lock.unlock();
      op->finish(cause.with("op", std::string(name_of(op->kind()))));
      return op;
    }
    auto timeout = options.timeout.count() > 0 ? options.timeout : timeout_;
    auto deadline = ff::saturating_add(ff::coarse_now(), timeout);
    if (message) {
      op->set_place(0, 0, deadline, timeout);
    } else {
      signature_ = chain_signature(signature_, op->descriptor());
      op->set_place(++sequence_, signature_, deadline, timeout);
      calls_.record(sequence_, op->descriptor());
    }
    incoming_.push_back(op);
    pending_.fetch_add(1, std::memory_order_relaxed);
    if (message) message_count_.fetch_add(1, std::memory_order_relaxed);
    incoming_any_.store(true, std::memory_order_release);
  }
  poll();
  if (!op->done() && !options.will_wait) engine_->ensure_driven(*this);
  return op;
}

void CommunicatorImpl::take_incoming() {
  std::lock_guard lock(queue_mu_);
  for (auto& op : incoming_) {
    bool message = op->kind() == OpKind::kSend || op->kind() == OpKind::kRecv;
    if (message) {
      op->begin();
      messages_.push_back(std::move(op));
    } else {
      active_.push_back(std::move(op));
    }
  }
  incoming_.clear();
  incoming_any_.store(false, std::memory_order_relaxed);
}

bool CommunicatorImpl::poll() {
  std::unique_lock lock(step_mu_, std::try_to_lock);
  if (!lock) return false;
  if (noticed_.load(std::memory_order_acquire)) act_on_notice();
  if (incoming_any_.load(std::memory_order_acquire)) take_incoming();
  bool moved = false;
  if (!diagnosis_ || diagnosis_->why() != Diagnosis::Why::kMismatch) {
    moved = advance_head();
    if (!messages_.empty()) moved |= advance_messages();
  }
  inbox_->flush();
  return moved;
}

bool CommunicatorImpl::advance_head() {
  bool moved = false;
  while (!active_.empty()) {
    Op& head = *active_.front();
    if (!head_begun_) {
      head.begin();
      head_begun_ = true;
      head_since_ = ff::coarse_now();
    }
    Advance how = head.advance();
    if (how == Advance::kBlocked) break;
    moved = true;
    if (how != Advance::kDone) continue;
    auto op = std::move(active_.front());
    active_.pop_front();
    head_begun_ = false;
    settle(op, {});
  }
  return moved;
}

bool CommunicatorImpl::advance_messages() {
  bool moved = false;
  for (std::size_t i = 0; i < messages_.size();) {
    if (messages_[i]->advance() != Advance::kDone) {
      ++i;
      continue;
    }
    auto op = std::move(messages_[i]);
    messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
    message_count_.fetch_sub(1, std::memory_order_relaxed);
    settle(op, {});
    moved = true;
  }
  return moved;
}

void CommunicatorImpl::settle(const std::shared_ptr<Op>& op, Status status) {
  pending_.fetch_sub(1, std::memory_order_relaxed);
  op->finish(std::move(status));
}

RequestPtr CommunicatorImpl::reject(OpKind kind, std::string why) {
  return failed_request(shared_from_this(), kind, Status(Code::kInvalidArgument, std::move(why)));
}

// ---- leaving -----------------------------------------------------------------------------------

void CommunicatorImpl::abort(const std::string& why) {
  std::lock_guard lock(step_mu_);
  take_incoming();
  fail(Status(
      Code::kAborted,
      fmt::format("{} aborted the group{}{}", name_rank(rank_), why.empty() ? "" : ": ", why),
      facts_of(rank_)));
  inbox_->flush();
}

void CommunicatorImpl::shutdown() {
  std::vector<std::shared_ptr<Op>> open;
  {
    std::lock_guard lock(step_mu_);
    if (shut_down_.exchange(true)) return;
    enter_phase(Phase::kDestroy);
    take_incoming();
    open.assign(active_.begin(), active_.end());
    // A receive that nobody has answered yet would wait for ever; a send is owed to its receiver.
    for (std::size_t i = 0; i < messages_.size();) {
      if (messages_[i]->kind() == OpKind::kSend) {
        open.push_back(messages_[i++]);
        continue;
      }
      auto op = std::move(messages_[i]);
      messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
      message_count_.fetch_sub(1, std::memory_order_relaxed);
      op->cancel();
      settle(op, Status(Code::kAborted, "recv: the group was destroyed"));
    }
  }
  for (auto& op : open) static_cast<void>(op->wait(std::chrono::milliseconds::zero()));
  std::lock_guard lock(step_mu_);
  if (failed_.load()) return;
  for (int rank = 0; rank < size_; ++rank) {
    // On every lane, behind all that was sent there.
    for (Conn* lane : members_[rank].lanes) send_frame(*lane, FrameType::kGoodbye, "");
  }
  std::lock_guard queue_lock(queue_mu_);
  failure_ = Status(Code::kAborted, "the group was destroyed");
  failed_.store(true);
}

void CommunicatorImpl::leave() {
  engine_->peers().remove_group(group_);
  engine_->detach(this);
}

}  // namespace hfreduce
