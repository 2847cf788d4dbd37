// SPDX-License-Identifier: Apache-2.0
//
// The failure half of CommunicatorImpl: frames that tell of trouble, deadlines, and the end.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "hfreduce/engine/cause.h"
#include "hfreduce/engine/communicator_impl.h"
#include "net/socket.h"

namespace hfreduce {

using ff::Code;
using ff::Status;

namespace {

// A blocked operation is looked into after this long: have all called the same, is all still there?
constexpr auto kLookAfter = std::chrono::milliseconds(300);

}  // namespace

int CommunicatorImpl::global_rank(int rank) const {
  auto index = static_cast<std::size_t>(rank);
  return index < options_.global_ranks.size() ? options_.global_ranks[index] : rank;
}

std::string CommunicatorImpl::name_rank(int rank) const {
  const Member& member = members_[rank];
  int global = global_rank(rank);
  std::string in_world = global != rank ? fmt::format(" [global {}]", global) : "";
  return fmt::format("rank {}{} (host {}, pid {})", rank, in_world, member.host, member.pid);
}

Status::Context CommunicatorImpl::facts_of(int rank) const {
  return {{"rank", std::to_string(rank)},
          {"global_rank", std::to_string(global_rank(rank))},
          {"host", members_[rank].host},
          {"pid", std::to_string(members_[rank].pid)},
          {"group", options_.group_name}};
}

Status CommunicatorImpl::describe_loss(int rank, const Status& why) const {
  return Status(Code::kPeerLost, fmt::format("{} has died ({})", name_rank(rank), why.message()),
                facts_of(rank));
}

Status CommunicatorImpl::loss_of(int global) const {
  // Of a group that has been left, ranks may have been started anew.
  if (!opened_.load(std::memory_order_acquire) || shut_down_.load()) return {};
  for (int rank = 0; rank < size_; ++rank) {
    const auto& peer = members_[rank].peer;
    if (!peer || global_rank(rank) != global || !peer->lost.load()) continue;
    std::lock_guard lock(peer->mu);
    return describe_loss(rank, peer->why_lost);
  }
  return {};
}

Status CommunicatorImpl::early_loss() {
  std::lock_guard lock(notice_mu_);
  return notice_.failure.value_or(Status());
}

Status CommunicatorImpl::health() const {
  std::lock_guard lock(queue_mu_);
  return failure_;
}

// ---- frames ------------------------------------------------------------------------------------

bool CommunicatorImpl::is_member(int rank, const Peer& peer) const {
  return rank >= 0 && rank < size_ && members_[rank].id == peer.id;
}

Sink CommunicatorImpl::bulk_begins(Conn* conn, const FrameHeader& header) {
  return inbox_->bulk_begins(conn, header);
}

void CommunicatorImpl::bulk_arrived(const FrameHeader& header, Sink sink) {
  inbox_->bulk_arrived(header, std::move(sink));
}

void CommunicatorImpl::control_arrived(const FrameHeader& header, std::string payload,
                                       std::vector<ff::UniqueFd> fds) {
  switch (header.type) {
    case FrameType::kGroupSegment: {
      std::lock_guard lock(notice_mu_);
      group_segments_.push_back(std::move(fds[0]));
      group_segment_came_.notify_all();
      return;
    }
    case FrameType::kAbort:
      notice_failure(decode_cause(payload));
      return;
    case FrameType::kGoodbye: {
      std::lock_guard lock(notice_mu_);
      ++goodbyes_[header.rank];
      return;
    }
    case FrameType::kQuery: {
      if (!opened_.load(std::memory_order_acquire)) return;
      CallReport report;
      {
        std::lock_guard lock(queue_mu_);
        report = CallReport::of(calls_, {waiting_for_.begin(), waiting_for_.end()});
      }
      send_control(header.rank, FrameType::kAnswer, report.encode());
      return;
    }
    case FrameType::kAnswer: {
      auto report = CallReport::decode(payload, size_);
      if (!report) return;
      std::lock_guard lock(notice_mu_);
      notice_.reports.emplace_back(header.rank, std::move(*report));
      noticed_.store(true, std::memory_order_release);
      return;
    }
    default:
      inbox_->control_arrived(header);
  }
}

void CommunicatorImpl::send_control(int rank, FrameType type, const std::string& payload) {
  const std::vector<Conn*>& lanes = members_[rank].lanes;
  if (!lanes.empty()) send_frame(*lanes.front(), type, payload);
}

void CommunicatorImpl::send_frame(Conn& conn, FrameType type, const std::string& payload) const {
  FrameHeader header;
  header.type = type;
  header.group = group_;
  header.rank = static_cast<std::uint16_t>(rank_);
  header.length = payload.size();
  conn.enqueue(header, payload.data(), nullptr);
  conn.flush();
}

void CommunicatorImpl::peer_lost(const Peer& peer, const Status& why) {
  for (int rank = 0; rank < size_; ++rank) {
    if (members_[rank].id != peer.id) continue;
    {
      std::lock_guard lock(notice_mu_);
      if (goodbyes_[rank] > 0) return;
    }
    notice_failure(describe_loss(rank, why));
    return;
  }
}

void CommunicatorImpl::notice_failure(Status cause) {
  std::lock_guard lock(notice_mu_);
  if (!notice_.failure) notice_.failure = std::move(cause);
  noticed_.store(true, std::memory_order_release);
  group_segment_came_.notify_all();
}

void CommunicatorImpl::note_mismatch(int rank, const std::string& what) {
  std::lock_guard lock(notice_mu_);
  if (notice_.mismatch_with < 0) {
    notice_.mismatch_with = rank;
    notice_.mismatch = name_rank(rank) + " " + what;
  }
  noticed_.store(true, std::memory_order_release);
}

void CommunicatorImpl::note_other_call(int mate, std::uint64_t step) {
  // A mate that has given up says why in a frame, which is on its way.
  if (team_->signature(mate, step) == kWithdrawn) return;
  note_mismatch(mates()[mate], "called something else");
}

// ---- verdicts: below, step_mu_ is held ---------------------------------------------------------

void CommunicatorImpl::act_on_notice() {
  Notice notice;
  {
    std::lock_guard lock(notice_mu_);
    notice = std::exchange(notice_, {});
    noticed_.store(false, std::memory_order_relaxed);
  }
  if (failed_.load(std::memory_order_relaxed)) return;
  take_incoming();
  if (notice.failure) {
    fail(*notice.failure);
    return;
  }
  if (notice.mismatch_with >= 0 && !diagnosis_) {
    mismatch_text_ = notice.mismatch;
    diagnosis_.emplace(Diagnosis::Why::kMismatch, "", 0, std::chrono::milliseconds(0),
                       ff::Clock::now());
    for (int rank = 0; rank < size_; ++rank) query(rank);
  }
  if (!diagnosis_) return;
  for (auto& [rank, report] : notice.reports) {
    // Whoever is waited for in turn is asked as well.
    for (std::int32_t next : report.waiting_for) query(next);
    diagnosis_->add_report(rank, std::move(report));
  }
  finish_diagnosis();
}

void CommunicatorImpl::query(int rank) {
  if (rank < 0 || rank >= size_ || rank == rank_ || !diagnosis_->ask(rank)) return;
  send_control(rank, FrameType::kQuery, "");
}

std::vector<int> CommunicatorImpl::current_blockers() const {
  std::vector<int> ranks;
  if (!active_.empty() && head_begun_) active_.front()->blockers(&ranks);
  for (const auto& op : messages_) op->blockers(&ranks);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void CommunicatorImpl::start_diagnosis(Diagnosis::Why why, const Op& op) {
  diagnosis_.emplace(why, op.title(), op.sequence(), op.timeout(), ff::Clock::now());
  std::vector<int> blockers;
  op.blockers(&blockers);
  if (blockers.empty()) blockers = current_blockers();
  for (int rank : blockers) query(rank);
}

std::string CommunicatorImpl::silence_of(int rank) const {
  if (members_[rank].lanes.empty()) return "is not connected";
  const Conn* conn = members_[rank].lanes.front();
  auto now = ff::Clock::now();
  auto heard_s = std::chrono::duration_cast<std::chrono::seconds>(now - conn->last_heard()).count();
  if (conn->is_unix()) return "does not answer: its process may be stopped";
  std::int64_t ack_ms = ff::ms_since_last_ack(conn->fd());
  if (ack_ms >= 0 && ack_ms < 3000) {
    return fmt::format(
        "does not answer (last heard {} s ago), though its host does: its process "
        "may be stopped",
        heard_s);
  }
  return fmt::format("is unreachable since {} s", std::max<std::int64_t>(heard_s, ack_ms / 1000));
}

void CommunicatorImpl::finish_diagnosis() {
  if (!diagnosis_ || !diagnosis_->complete(ff::Clock::now())) return;
  Diagnosis::Words words{[this](int rank) { return name_rank(rank); },
                         [this](int rank) { return silence_of(rank); }};
  Diagnosis diagnosis = *std::exchange(diagnosis_, std::nullopt);
  Status mismatch;
  {
    std::lock_guard lock(queue_mu_);
    mismatch = diagnosis.mismatched(rank_, calls_, words);
  }
  if (!mismatch) {
    fail(mismatch.with("group", options_.group_name));
  } else if (diagnosis.why() == Diagnosis::Why::kMismatch) {
    fail(Status(Code::kMismatch, mismatch_text_, {{"group", options_.group_name}}));
  } else if (diagnosis.why() == Diagnosis::Why::kTimeout && any_overdue()) {
    std::vector<int> blamed;
    Status verdict = diagnosis.timed_out(current_blockers(), words, &blamed);
    Status::Context facts;
    if (!blamed.empty()) facts = facts_of(blamed.front());
    std::string ranks;
    for (int rank : blamed) ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
    facts.emplace_back("ranks", ranks);
    fail(Status(verdict.code(), fmt::format("{} gave up: {}", name_rank(rank_), verdict.message()),
                std::move(facts)));
  }
}

// Operations may have ended while the ranks were asked.
bool CommunicatorImpl::any_overdue() const {
  auto now = ff::Clock::now();
  auto overdue = [&](const auto& op) { return now >= op->deadline(); };
  return std::any_of(active_.begin(), active_.end(), overdue) ||
         std::any_of(messages_.begin(), messages_.end(), overdue);
}

// The ranks that have left. All that they sent and published came before their goodbye, and they
// took all that they wanted, so once the operations have moved on as far as they can, whoever waits
// for such a rank waits in vain.
std::vector<bool> CommunicatorImpl::take_what_leavers_left() {
  std::vector<bool> left;
  {
    std::lock_guard lock(notice_mu_);
    for (int rank = 0; rank < size_; ++rank) {
      left.push_back(goodbyes_[rank] > 0 && goodbyes_[rank] >= members_[rank].lanes.size());
    }
  }
  bool any = false;
  for (int rank = 0; rank < size_; ++rank) {
    if (!left[rank]) continue;
    any = true;
    // Another thread may have given the last bytes to the kernel and not said so yet: it does
    // before it lets go of the lock that this takes.
    for (Conn* lane : members_[rank].lanes) lane->flush();
  }
  if (any) advance_all();
  return left;
}

void CommunicatorImpl::tick(ff::TimePoint now) {
  std::unique_lock lock(step_mu_, std::try_to_lock);
  if (!lock || failed_.load(std::memory_order_relaxed)) return;
  if (!opened_.load(std::memory_order_acquire)) return;
  if (noticed_.load(std::memory_order_acquire)) act_on_notice();
  if (incoming_any_.load(std::memory_order_acquire)) take_incoming();
  if (active_.empty() && messages_.empty()) return;
  const std::vector<bool> left = take_what_leavers_left();
  std::vector<int> blockers = current_blockers();
  {
    std::lock_guard queue_lock(queue_mu_);
    waiting_for_ = blockers;
  }
  finish_diagnosis();
  if (failed_.load(std::memory_order_relaxed)) return;
  for (int rank : blockers) {
    if (!left[rank]) continue;
    fail(Status(Code::kPeerLost, fmt::format("{} has left the group", name_rank(rank)),
                facts_of(rank)));
    return;
  }
  if (diagnosis_) return;
  for (const auto& op : active_) {
    if (now < op->deadline()) continue;
    start_diagnosis(Diagnosis::Why::kTimeout, *op);
    return;
  }
  for (const auto& op : messages_) {
    if (now < op->deadline()) continue;
    start_diagnosis(Diagnosis::Why::kTimeout, *op);
    return;
  }
  if (!active_.empty() && head_begun_ && now - head_since_ > kLookAfter) {
    head_since_ = now + std::chrono::seconds(1);
    start_diagnosis(Diagnosis::Why::kLook, *active_.front());
  }
}

void CommunicatorImpl::fail(const Status& cause) {
  {
    std::lock_guard lock(queue_mu_);
    if (failed_.load(std::memory_order_relaxed)) return;
    failure_ = cause;
    failed_.store(true, std::memory_order_release);
  }
  ff::log(ff::LogLevel::kInfo, "group {}: {}", options_.group_name, cause.to_string());
  diagnosis_.reset();
  if (team_) team_->withdraw();
  std::vector<std::shared_ptr<Op>> open(active_.begin(), active_.end());
  open.insert(open.end(), messages_.begin(), messages_.end());
  active_.clear();
  messages_.clear();
  head_begun_ = false;
  tell_peers(cause);
  for (const auto& op : open) {
    op->cancel();
    bool message = op->kind() == OpKind::kSend || op->kind() == OpKind::kRecv;
    if (message) message_count_.fetch_sub(1, std::memory_order_relaxed);
    Status::Context facts = cause.context();
    facts.emplace_back("op", std::string(name_of(op->kind())));
    if (cause.fact("seq").empty()) facts.emplace_back("seq", std::to_string(op->sequence()));
    settle(op, Status(cause.code(), op->title() + ": " + cause.message(), std::move(facts)));
  }
}

void CommunicatorImpl::tell_peers(const Status& cause) {
  std::string payload = encode_cause(cause);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) send_control(rank, FrameType::kAbort, payload);
  }
}

}  // namespace hfreduce
