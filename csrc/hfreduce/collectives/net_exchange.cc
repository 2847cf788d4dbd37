// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/collectives/net_exchange.h"

#include <algorithm>

namespace hfreduce {
namespace {

std::uint64_t slot_id(std::uint32_t stream, std::size_t piece) {
  return std::uint64_t{stream} << 32 | piece;
}

bool is_done(const Transfer& transfer) { return transfer.done.load(std::memory_order_acquire); }

}  // namespace

void NetExchange::add_send(int to, std::uint32_t stream, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  std::size_t piece = 0;
  for (std::size_t at = 0; at < bytes || piece == 0; at += kPieceBytes, ++piece) {
    comm().inbox().send(to, sequence(), slot_id(stream, piece), descriptor(), signature(),
                        from + at, std::min(kPieceBytes, bytes - at), &sends_.emplace_back());
  }
}

void NetExchange::add_receive(int from, std::uint32_t stream, void* data, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(data);
  std::size_t piece = 0;
  for (std::size_t at = 0; at < bytes || piece == 0; at += kPieceBytes, ++piece) {
    comm().inbox().post(from, sequence(), slot_id(stream, piece), signature(), to + at,
                        std::min(kPieceBytes, bytes - at), &receives_.emplace_back());
  }
}

Advance NetExchange::advance() {
  std::size_t before = received_ + sent_;
  for (;;) {
    while (received_ < receives_.size() && is_done(receives_[received_])) ++received_;
    while (sent_ < sends_.size() && is_done(sends_[sent_])) ++sent_;
    if (received_ < receives_.size() || sent_ < sends_.size()) break;
    if (finish_stage()) return Advance::kDone;
  }
  return received_ + sent_ > before ? Advance::kMoved : Advance::kBlocked;
}

void NetExchange::cancel() {
  for (RecvSlot& slot : receives_) {
    if (!is_done(slot)) comm().inbox().cancel(&slot);
  }
  for (SendSlot& slot : sends_) {
    if (!is_done(slot)) comm().inbox().cancel(&slot);
  }
}

void NetExchange::blockers(std::vector<int>* out) const {
  for (const RecvSlot& slot : receives_) {
    if (!is_done(slot)) out->push_back(slot.rank);
  }
  for (const SendSlot& slot : sends_) {
    if (!is_done(slot)) out->push_back(slot.rank);
  }
}

}  // namespace hfreduce
