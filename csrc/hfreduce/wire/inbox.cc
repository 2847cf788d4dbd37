// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/wire/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "hfreduce/counters.h"

namespace hfreduce {
namespace {

// Flags of kData and kGrant: the payload belongs to a message, not to a collective.
constexpr std::uint8_t kOfMessage = 1;
// Flag of kData: sent unasked, counts against the sender's credit.
constexpr std::uint8_t kUnasked = 2;

std::string size_conflict(std::uint64_t sent, std::uint64_t expected) {
  return fmt::format("sent {} bytes where {} were expected", sent, expected);
}

// What is wrong with a payload for its place; empty if it fits.
std::string conflict(const RecvSlot& slot, std::uint64_t size, std::uint32_t signature,
                     const OpDescriptor& op) {
  if (slot.signature != 0 && signature != slot.signature) return "called " + op.to_string();
  return size != slot.size ? size_conflict(size, slot.size) : std::string();
}

}  // namespace

Inbox::Inbox(std::uint64_t group, int rank, int size,
             std::function<void(int, const std::string&)> mismatch)
    : group_(group),
      rank_(rank),
      mismatch_(std::move(mismatch)),
      in_flight_(static_cast<std::size_t>(size), 0),
      taken_(static_cast<std::size_t>(size), 0),
      consumed_(static_cast<std::size_t>(size), 0),
      dirty_(static_cast<std::size_t>(size), false) {}

void Inbox::connect(std::vector<std::vector<Conn*>> lanes) {
  std::lock_guard lock(mu_);
  lanes_ = std::move(lanes);
}

void Inbox::observe(PayloadObserver* observer) {
  std::lock_guard lock(mu_);
  observer_ = observer;
}

void Inbox::post(int from, std::uint64_t sequence, std::uint64_t slot, std::uint32_t signature,
                 void* data, std::uint64_t size, RecvSlot* out) {
  out->signature = signature;
  out->data = data;
  out->size = size;
  out->rank = from;
  std::string what;
  {
    std::lock_guard lock(mu_);
    Key key{from, sequence, slot};
    if (auto early = early_.find(key); early != early_.end()) {
      take_early(out, early->second, from, &what);
      early_.erase(early);
    } else {
      posted_.emplace(key, out);
      if (size > kEagerBytes || asked_.erase(key) > 0) grant(from, sequence, slot, false);
    }
  }
  if (!what.empty()) mismatch_(from, what);
}

void Inbox::send(int to, std::uint64_t sequence, std::uint64_t slot, const OpDescriptor& op,
                 std::uint32_t signature, const void* data, std::uint64_t size, SendSlot* out) {
  out->data = data;
  out->size = size;
  out->rank = to;
  out->header = {};
  out->header.type = FrameType::kData;
  out->header.sequence = sequence;
  out->header.slot = slot;
  out->header.op = op;
  out->header.signature = signature;
  std::lock_guard lock(mu_);
  Key key{to, sequence, slot};
  if (granted_.erase(key) > 0) {
    enqueue_data(out);
  } else if (fits_credit(to, size)) {
    out->header.flags = kUnasked;
    enqueue_data(out);
  } else {
    ungranted_.emplace(key, out);
    if (size <= kEagerBytes) {
      // Out of credit. The receiver grants a small payload only when asked.
      FrameHeader ask = out->header;
      ask.type = FrameType::kOffer;
      ask.group = group_;
      ask.rank = static_cast<std::uint16_t>(rank_);
      enqueue(to, ask);
    }
  }
}

void Inbox::post_message(int from, std::uint32_t tag, void* data, std::uint64_t size,
                         RecvSlot* out) {
  out->data = data;
  out->size = size;
  out->rank = from;
  std::string what;
  int who = from;
  {
    std::lock_guard lock(mu_);
    auto match = std::find_if(messages_.begin(), messages_.end(), [&](const Message& m) {
      return m.tag == tag && (from < 0 || m.rank == from);
    });
    if (match == messages_.end()) {
      posted_messages_.push_back({from, tag, out});
    } else {
      who = match->rank;
      out->rank = who;
      if (match->early) {
        take_early(out, match->early, who, &what);
      } else if (match->size != size) {
        what = size_conflict(match->size, size);
      } else {
        granted_messages_.emplace(Key{who, match->offer, 0}, out);
        grant(who, match->offer, 0, true);
      }
      messages_.erase(match);
    }
  }
  if (!what.empty()) mismatch_(who, what);
}

void Inbox::send_message(int to, std::uint32_t tag, const void* data, std::uint64_t size,
                         SendSlot* out) {
  out->data = data;
  out->size = size;
  out->rank = to;
  out->header = {};
  out->header.slot = tag;
  out->header.op.kind = OpKind::kSend;
  std::lock_guard lock(mu_);
  if (fits_credit(to, size)) {
    out->header.type = FrameType::kEager;
    enqueue_data(out);
    return;
  }
  std::uint64_t offer = next_offer_++;
  offered_.emplace(Key{to, offer, 0}, out);
  FrameHeader header = out->header;
  header.type = FrameType::kOffer;
  header.flags = kOfMessage;
  header.group = group_;
  header.rank = static_cast<std::uint16_t>(rank_);
  header.sequence = offer;
  header.op.count = size;
  enqueue(to, header);
  out->header.type = FrameType::kData;
  out->header.flags = kOfMessage;
  out->header.sequence = offer;
  out->header.slot = 0;
}

// Below, mu_ is held.

// Takes the credit if there is enough.
bool Inbox::fits_credit(int to, std::uint64_t size) {
  std::uint64_t cost = size + kEarlyOverhead;
  if (size > kEagerBytes || in_flight_[to] + cost > kCreditBytes) return false;
  in_flight_[to] += cost;
  return true;
}

// An unasked payload comes in: what is wrong with that, empty if nothing. A sender that keeps to
// its credit cannot make this rank keep more than kCreditBytes.
std::string Inbox::take_unasked(const FrameHeader& header) {
  if (header.length > kEagerBytes) return fmt::format("sent {} bytes unasked", header.length);
  std::uint64_t& taken = taken_[header.rank];
  taken += header.length + kEarlyOverhead;
  return taken <= kCreditBytes ? std::string() : "sent more than it had credit for";
}

void Inbox::enqueue(int rank, const FrameHeader& header, SendSlot* payload) {
  const std::vector<Conn*>& lanes = lanes_[rank];
  Conn* conn = lanes[0];
  if (payload != nullptr) {
    if (lanes.size() > 1 && header.length > kEagerBytes) {
      // Chunks of one operation have numbers in a row, two to a chunk, or every L-th of them.
      conn = lanes[(header.slot * 0x9e3779b97f4a7c15ULL >> 32) % lanes.size()];
    }
    payload->through = conn;
    conn->enqueue(header, payload->data, payload);
  } else {
    conn->enqueue(header, nullptr, nullptr);
  }
  dirty_[rank] = true;
  any_dirty_.store(true, std::memory_order_relaxed);
}

void Inbox::flush_rank(int rank) {
  if (!dirty_[rank]) return;
  dirty_[rank] = false;
  for (Conn* conn : lanes_[rank]) conn->flush();
}

void Inbox::enqueue_data(SendSlot* slot) {
  slot->header.group = group_;
  slot->header.rank = static_cast<std::uint16_t>(rank_);
  slot->header.length = slot->size;
  if (observer_ != nullptr) observer_->leaves(slot->rank, slot->header);
  enqueue(slot->rank, slot->header, slot);
  LiveCounters& counters = live_counters();
  counters.net_bytes_sent.fetch_add(slot->size, std::memory_order_relaxed);
  counters.net_frames_sent.fetch_add(1, std::memory_order_relaxed);
}

void Inbox::grant(int rank, std::uint64_t sequence, std::uint64_t slot, bool message) {
  FrameHeader header;
  header.type = FrameType::kGrant;
  header.flags = message ? kOfMessage : 0;
  header.group = group_;
  header.rank = static_cast<std::uint16_t>(rank_);
  header.sequence = sequence;
  header.slot = slot;
  enqueue(rank, header);
}

void Inbox::consume_credit(int rank, std::uint64_t bytes) {
  consumed_[rank] += bytes + kEarlyOverhead;
  if (consumed_[rank] < kCreditBytes / 4) return;
  FrameHeader header;
  header.type = FrameType::kCredit;
  header.group = group_;
  header.rank = static_cast<std::uint16_t>(rank_);
  header.op.count = consumed_[rank];
  taken_[rank] -= consumed_[rank];
  consumed_[rank] = 0;
  enqueue(rank, header);
}

void Inbox::take_early(RecvSlot* slot, const std::shared_ptr<Early>& early, int rank,
                       std::string* what) {
  *what = conflict(*slot, early->bytes.size(), early->signature, early->op);
  if (!what->empty()) return;
  if (!early->complete) {
    early->claimed = slot;  // bulk_arrived() copies
    claimed_.push_back(early);
    return;
  }
  if (slot->size > 0) std::memcpy(slot->data, early->bytes.data(), slot->size);
  consume_credit(rank, slot->size);
  slot->done.store(true, std::memory_order_release);
}

Sink Inbox::receive_into(RecvSlot* slot, Conn* conn, const FrameHeader& header, std::string* what) {
  *what = conflict(*slot, header.length, header.signature, header.op);
  if (!what->empty()) return {};
  slot->filling = conn;
  slot->rank = header.rank;
  return {slot->data, slot, nullptr};
}

Sink Inbox::keep_early(const FrameHeader& header, std::shared_ptr<Early> early) {
  early->bytes.resize(header.length);
  early->op = header.op;
  early->signature = header.signature;
  void* data = early->bytes.data();
  return {data, nullptr, std::move(early)};
}

Sink Inbox::bulk_begins(Conn* conn, const FrameHeader& header) {
  std::string what;
  Sink sink;
  bool unasked = header.type == FrameType::kEager || (header.flags & kUnasked) != 0;
  {
    std::lock_guard lock(mu_);
    live_counters().net_bytes_received.fetch_add(header.length, std::memory_order_relaxed);
    if (unasked) what = take_unasked(header);
    if (!what.empty()) {
      // Thrown away.
    } else if (header.type == FrameType::kEager) {
      auto tag = static_cast<std::uint32_t>(header.slot);
      auto match = std::find_if(posted_messages_.begin(), posted_messages_.end(),
                                [&](const PostedMessage& p) {
                                  return p.tag == tag && (p.rank < 0 || p.rank == header.rank);
                                });
      if (match != posted_messages_.end()) {
        sink = receive_into(match->slot, conn, header, &what);
        posted_messages_.erase(match);
      } else {
        auto early = std::make_shared<Early>();
        messages_.push_back({header.rank, tag, header.length, 0, early});
        sink = keep_early(header, std::move(early));
      }
    } else {
      bool message = (header.flags & kOfMessage) != 0;
      auto& waiting = message ? granted_messages_ : posted_;
      Key key{header.rank, header.sequence, header.slot};
      if (auto match = waiting.find(key); match != waiting.end()) {
        sink = receive_into(match->second, conn, header, &what);
        waiting.erase(match);
      } else if (unasked) {
        auto early = std::make_shared<Early>();
        early_.emplace(key, early);
        sink = keep_early(header, std::move(early));
      }
      // Anything else was cancelled here after it had been granted: thrown away.
    }
  }
  if (!what.empty()) mismatch_(header.rank, what);
  return sink;
}

void Inbox::bulk_arrived(const FrameHeader& header, Sink sink) {
  bool unasked = header.type == FrameType::kEager || (header.flags & kUnasked) != 0;
  std::lock_guard lock(mu_);
  if (observer_ != nullptr) observer_->has_arrived(header);
  if (sink.transfer != nullptr) {
    auto* slot = static_cast<RecvSlot*>(sink.transfer);
    slot->filling = nullptr;
    if (unasked) consume_credit(header.rank, header.length);
    slot->done.store(true, std::memory_order_release);
  } else if (sink.keep) {
    auto early = std::static_pointer_cast<Early>(sink.keep);
    early->complete = true;
    std::erase(claimed_, early);
    if (RecvSlot* slot = early->claimed) {
      if (slot->size > 0) std::memcpy(slot->data, early->bytes.data(), slot->size);
      consume_credit(header.rank, slot->size);
      slot->done.store(true, std::memory_order_release);
    }
  }
  flush_rank(header.rank);
}

void Inbox::control_arrived(const FrameHeader& header) {
  std::string what;
  {
    std::lock_guard lock(mu_);
    bool message = (header.flags & kOfMessage) != 0;
    Key key{header.rank, header.sequence, header.slot};
    if (header.type == FrameType::kGrant) {
      auto& waiting = message ? offered_ : ungranted_;
      if (auto match = waiting.find(key); match != waiting.end()) {
        enqueue_data(match->second);
        waiting.erase(match);
      } else if (!message) {
        granted_.insert(key);
      }
    } else if (header.type == FrameType::kCredit) {
      std::uint64_t& in_flight = in_flight_[header.rank];
      in_flight -= std::min(in_flight, header.op.count);
    } else if (header.type == FrameType::kOffer && message) {
      what = match_offer(header);
    } else if (header.type == FrameType::kOffer) {
      if (posted_.count(key) > 0) {
        grant(header.rank, header.sequence, header.slot, false);
      } else {
        asked_.insert(key);
      }
    }
    flush_rank(header.rank);
  }
  if (!what.empty()) mismatch_(header.rank, what);
}

std::string Inbox::match_offer(const FrameHeader& header) {
  auto tag = static_cast<std::uint32_t>(header.slot);
  auto match =
      std::find_if(posted_messages_.begin(), posted_messages_.end(), [&](const PostedMessage& p) {
        return p.tag == tag && (p.rank < 0 || p.rank == header.rank);
      });
  if (match == posted_messages_.end()) {
    messages_.push_back({header.rank, tag, header.op.count, header.sequence, nullptr});
    return {};
  }
  RecvSlot* slot = match->slot;
  posted_messages_.erase(match);
  if (slot->size != header.op.count) return size_conflict(header.op.count, slot->size);
  slot->rank = header.rank;
  granted_messages_.emplace(Key{header.rank, header.sequence, 0}, slot);
  grant(header.rank, header.sequence, 0, true);
  return {};
}

void Inbox::cancel(RecvSlot* slot) {
  Conn* filling = nullptr;
  {
    std::lock_guard lock(mu_);
    std::erase_if(posted_, [&](const auto& entry) { return entry.second == slot; });
    std::erase_if(granted_messages_, [&](const auto& entry) { return entry.second == slot; });
    posted_messages_.remove_if([&](const PostedMessage& p) { return p.slot == slot; });
    for (auto& early : claimed_) {
      if (early->claimed == slot) early->claimed = nullptr;
    }
    filling = slot->filling;
  }
  if (filling != nullptr) filling->cancel_receive(slot);
}

void Inbox::cancel(SendSlot* slot) {
  Conn* through = nullptr;
  {
    std::lock_guard lock(mu_);
    std::erase_if(ungranted_, [&](const auto& entry) { return entry.second == slot; });
    std::erase_if(offered_, [&](const auto& entry) { return entry.second == slot; });
    through = slot->through;
  }
  if (through != nullptr) through->cancel_send(slot);
}

void Inbox::flush() {
  if (!any_dirty_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mu_);
  any_dirty_.store(false, std::memory_order_relaxed);
  for (std::size_t rank = 0; rank < dirty_.size(); ++rank) flush_rank(static_cast<int>(rank));
}

}  // namespace hfreduce
