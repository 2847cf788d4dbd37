// SPDX-License-Identifier: Apache-2.0
//
// All-to-all: rank s's block d becomes rank d's block s; sizes may differ for every pair. Blocks
// for other nodes go straight to their ranks, while those for the own node go through its slots. A
// slot begins with a table of the member's block sizes, so that all know how many steps there are
// and each can check what it is about to get; behind it stands a piece for each other member.
#include <cstring>

#include "hfreduce/collectives/net_exchange.h"
#include "hfreduce/collectives/shm_exchange.h"
#include "hfreduce/collectives/stages.h"

namespace hfreduce {
namespace {

void copy_own(const ConstBytes& in, const Bytes& out) {
  if (in.size > 0 && out.data != in.data) std::memmove(out.data, in.data, in.size);
}

class ShmAlltoall final : public ShmExchange {
 public:
  ShmAlltoall(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
              std::vector<ConstBytes> in, std::vector<Bytes> out)
      : ShmExchange(std::move(comm), descriptor),
        in_(std::move(in)),
        out_(std::move(out)),
        table_((sizeof(std::uint64_t) * static_cast<std::size_t>(members_) + 63) / 64 * 64),
        piece_((team_.slot_bytes() - table_) / static_cast<std::size_t>(members_) / 64 * 64) {
    set_steps(1);
  }

 protected:
  bool puts(std::uint64_t /*step*/) const override { return true; }
  bool wants(int /*member*/, std::uint64_t /*step*/) const override { return true; }

  void put_in(std::uint64_t step, std::byte* slot) override {
    if (step == 0) {
      for (int member = 0; member < members_; ++member) {
        std::uint64_t size = in_[rank_of(member)].size;
        std::memcpy(slot + sizeof(size) * static_cast<std::size_t>(member), &size, sizeof(size));
      }
      copy_own(in_[rank_of(me_)], out_[rank_of(me_)]);
    }
    for (int member = 0; member < members_; ++member) {
      const ConstBytes& block = in_[rank_of(member)];
      Piece piece = piece_at(block.size, piece_, step);
      if (member == me_ || piece.size == 0) continue;
      std::memcpy(slot + table_ + piece_ * static_cast<std::size_t>(member),
                  static_cast<const std::byte*>(block.data) + piece.first, piece.size);
      count_shm_copy(piece.size);
    }
  }

  void take_out(std::uint64_t step) override {
    if (step == 0 && !read_tables()) return;
    for (int member = 0; member < members_; ++member) {
      const Bytes& block = out_[rank_of(member)];
      Piece piece = piece_at(block.size, piece_, step);
      if (member == me_ || piece.size == 0) continue;
      std::memcpy(static_cast<std::byte*>(block.data) + piece.first,
                  slot_of(member, step) + table_ + piece_ * static_cast<std::size_t>(me_),
                  piece.size);
      count_shm_copy(piece.size);
    }
  }

 private:
  bool read_tables() {
    std::uint64_t most = 0;
    for (int member = 0; member < members_; ++member) {
      for (int target = 0; target < members_; ++target) {
        if (member == target) continue;
        std::uint64_t size = in_[rank_of(target)].size;
        if (member != me_) {
          std::memcpy(&size, slot_of(member, 0) + sizeof(size) * static_cast<std::size_t>(target),
                      sizeof(size));
        }
        most = std::max(most, size);
        if (target == me_ && size != out_[rank_of(member)].size) {
          report_mismatch(member, "sends " + std::to_string(size) + " bytes where " +
                                      std::to_string(out_[rank_of(member)].size) + " are expected");
          return false;
        }
      }
    }
    std::uint64_t steps = pieces_in(most, piece_);
    if (steps > 1) add_steps(steps - 1);
    return true;
  }

  const std::vector<ConstBytes> in_;
  const std::vector<Bytes> out_;
  const std::size_t table_;  // bytes
  const std::size_t piece_;  // bytes
};

class NetAlltoall final : public NetExchange {
 public:
  NetAlltoall(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
              std::vector<ConstBytes> in, std::vector<Bytes> out)
      : NetExchange(std::move(comm), descriptor), in_(std::move(in)), out_(std::move(out)) {}

  void begin() override {
    const int size = comm().size();
    const int rank = comm().rank();
    if (comm().team() == nullptr) copy_own(in_[rank], out_[rank]);
    for (int i = 1; i < size; ++i) {
      int from = (rank - i + size) % size;
      if (!is_mate(from)) add_receive(from, 0, out_[from].data, out_[from].size);
    }
    for (int i = 1; i < size; ++i) {
      int to = (rank + i) % size;
      if (!is_mate(to)) add_send(to, 0, in_[to].data, in_[to].size);
    }
  }

 private:
  bool is_mate(int rank) const { return comm().layout().node_of[rank] == comm().node(); }

  const std::vector<ConstBytes> in_;
  const std::vector<Bytes> out_;
};

}  // namespace

RequestPtr CommunicatorImpl::alltoall(std::vector<ConstBytes> in, std::vector<Bytes> out,
                                      DType dtype, OpOptions options) {
  if (static_cast<int>(in.size()) != size_ || static_cast<int>(out.size()) != size_) {
    return reject(OpKind::kAlltoall, "alltoall needs an input and an output for each of the " +
                                         std::to_string(size_) + " ranks, and was given " +
                                         std::to_string(in.size()) + " and " +
                                         std::to_string(out.size()));
  }
  if (in[rank_].size != out[rank_].size) {
    return reject(OpKind::kAlltoall, "alltoall: this rank sends itself " +
                                         std::to_string(in[rank_].size) + " bytes and expects " +
                                         std::to_string(out[rank_].size));
  }
  OpDescriptor descriptor = describe(OpKind::kAlltoall, dtype, RedOp::kSum, -1, 0);
  auto self = shared_from_this();
  std::vector<std::shared_ptr<Op>> stages;
  if (layout_.node_count() > 1 || !team_) {
    stages.push_back(std::make_shared<NetAlltoall>(self, descriptor, in, out));
  }
  if (team_) {
    stages.push_back(
        std::make_shared<ShmAlltoall>(self, descriptor, std::move(in), std::move(out)));
  }
  return submit(make_stages(self, descriptor, StageOrder::kAtOnce, std::move(stages)), options);
}

}  // namespace hfreduce
