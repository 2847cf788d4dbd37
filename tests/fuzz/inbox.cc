// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/wire/inbox.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>

#include "target.h"

namespace {

using namespace hfreduce;

constexpr int kRanks = 3;  // this rank is 0

class Nobody final : public FrameHandler {
 public:
  Sink bulk_begins(Conn& /*conn*/, const FrameHeader& /*header*/) override { return {}; }
  void bulk_arrived(Conn& /*conn*/, const FrameHeader& /*header*/, Sink /*sink*/) override {}
  ff::Status control_arrived(Conn& /*conn*/, const FrameHeader& /*header*/, std::string /*text*/,
                             std::vector<ff::UniqueFd> /*fds*/) override {
    return {};
  }
  void conn_lost(Conn& /*conn*/, const ff::Status& /*why*/) override {}
  void wants_write(Conn& /*conn*/, bool /*wanted*/) override {}
};

// Two peers that send headers in any order, while this rank posts, sends and cancels.
class Play {
 public:
  explicit Play(fuzz::Dice dice)
      : dice_(dice), inbox_(7, 0, kRanks, [](int rank, const auto&) {
          fuzz::require(rank >= 0 && rank < kRanks);
        }) {
    for (int rank = 1; rank < kRanks; ++rank) {
      int ends[2];
      fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
      conns_[rank] = std::make_shared<Conn>(ff::UniqueFd(ends[0]), false, "a peer", &nobody_);
      peers_[rank].reset(ends[1]);
    }
    inbox_.connect({{}, {conns_[1].get()}, {conns_[2].get()}});
  }
  ~Play() {
    for (RecvSlot& slot : receives_) inbox_.cancel(&slot);
    for (SendSlot& slot : sends_) inbox_.cancel(&slot);
  }

  void run() {
    while (!dice_.empty()) step();
  }

 private:
  int peer() { return 1 + static_cast<int>(dice_.below(kRanks - 1)); }
  std::uint64_t length() {
    constexpr std::array<std::uint64_t, 6> kLengths = {0,     8,  kEagerBytes, kEagerBytes + 1,
                                                       20000, 100};
    return kLengths[dice_.below(kLengths.size())];
  }

  void step() {
    const int rank = peer();
    const std::uint64_t sequence = dice_.below(4);
    const std::uint64_t slot = dice_.below(4);
    switch (dice_.below(8)) {
      case 0:
        post(rank, sequence, slot);
        break;
      case 1:
        inbox_.send(rank, sequence, slot, {}, 1, source_.data(), length(), &sends_.emplace_back());
        break;
      case 2:
        inbox_.send_message(rank, static_cast<std::uint32_t>(slot), source_.data(), length(),
                            &sends_.emplace_back());
        break;
      case 3:
        cancel_one();
        break;
      default:
        arrive(rank, sequence, slot);
    }
    inbox_.flush();
    drain();
  }

  void post(int rank, std::uint64_t sequence, std::uint64_t slot) {
    auto& place = places_.emplace_back(length());
    RecvSlot& receive = receives_.emplace_back();
    if (dice_.below(2) == 0) {
      inbox_.post(rank, sequence, slot, 1, place.data(), place.size(), &receive);
    } else {
      inbox_.post_message(dice_.below(3) == 0 ? -1 : rank, static_cast<std::uint32_t>(slot),
                          place.data(), place.size(), &receive);
    }
  }

  void cancel_one() {
    if (dice_.below(2) == 0 && !receives_.empty()) {
      inbox_.cancel(&receives_[dice_.below(receives_.size())]);
    } else if (!sends_.empty()) {
      inbox_.cancel(&sends_[dice_.below(sends_.size())]);
    }
  }

  void arrive(int rank, std::uint64_t sequence, std::uint64_t slot) {
    constexpr std::array<FrameType, 5> kTypes = {FrameType::kData, FrameType::kEager,
                                                 FrameType::kGrant, FrameType::kOffer,
                                                 FrameType::kCredit};
    FrameHeader header;
    header.type = kTypes[dice_.below(kTypes.size())];
    header.flags = static_cast<std::uint8_t>(dice_.below(4));
    header.rank = static_cast<std::uint16_t>(rank);
    header.group = 7;
    header.sequence = sequence;
    header.slot = slot;
    header.signature = static_cast<std::uint32_t>(1 + dice_.below(8) / 7);
    header.length = dice_.below(16) == 0 ? dice_.word() : length();
    header.op.count = dice_.below(16) == 0 ? dice_.word() : header.length;
    if (header.type != FrameType::kData && header.type != FrameType::kEager) {
      inbox_.control_arrived(header);
      return;
    }
    Sink sink = inbox_.bulk_begins(conns_[rank].get(), header);
    // As a connection would: a payload that has a place is as long as the place.
    if (sink.data != nullptr && header.length > 0) std::memset(sink.data, 1, header.length);
    if (dice_.below(4) == 0) post(rank, sequence, slot);  // while it is under way
    inbox_.bulk_arrived(header, std::move(sink));
  }

  void drain() {
    std::array<char, 1 << 16> scrap;
    for (int rank = 1; rank < kRanks; ++rank) {
      while (::recv(peers_[rank].get(), scrap.data(), scrap.size(), 0) > 0) conns_[rank]->flush();
    }
  }

  fuzz::Dice dice_;
  Nobody nobody_;
  std::array<std::shared_ptr<Conn>, kRanks> conns_;
  std::array<ff::UniqueFd, kRanks> peers_;
  std::vector<std::byte> source_ = std::vector<std::byte>(kEagerBytes * 2);
  std::deque<std::vector<std::byte>> places_;
  std::deque<RecvSlot> receives_;
  std::deque<SendSlot> sends_;
  Inbox inbox_;
};

}  // namespace

FUZZ_TARGET(inbox) {
  Play(fuzz::Dice(data, size)).run();
  return 0;
}
