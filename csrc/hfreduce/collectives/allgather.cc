// SPDX-License-Identifier: Apache-2.0
//
// Allgather: every rank's block to every rank. In a node each member fills its slots with its block
// and empties the others'; between nodes each rank sends its block to all others.
#include <cstring>

#include "hfreduce/collectives/net_exchange.h"
#include "hfreduce/collectives/shm_exchange.h"

namespace hfreduce {
namespace {

void copy_own(ConstBytes in, const Bytes& out) {
  if (in.size > 0 && out.data != in.data) std::memmove(out.data, in.data, in.size);
}

class ShmAllgather final : public ShmExchange {
 public:
  ShmAllgather(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
               ConstBytes in, std::vector<Bytes> out)
      : ShmExchange(std::move(comm), descriptor), in_(in), out_(std::move(out)) {
    std::size_t most = 0;
    for (const Bytes& block : out_) most = std::max(most, block.size);
    set_steps(std::max<std::uint64_t>(1, pieces_in(most, team_.slot_bytes())));
  }

 protected:
  bool puts(std::uint64_t /*step*/) const override { return true; }
  bool wants(int /*member*/, std::uint64_t /*step*/) const override { return true; }
  void put_in(std::uint64_t step, std::byte* slot) override {
    Piece piece = piece_at(in_.size, team_.slot_bytes(), step);
    const auto* from = static_cast<const std::byte*>(in_.data);
    if (piece.size > 0) std::memcpy(slot, from + piece.first, piece.size);
    count_shm_copy(piece.size);
    if (step == 0) copy_own(in_, out_[rank_of(me_)]);
  }
  void take_out(std::uint64_t step) override {
    for (int member = 0; member < members_; ++member) {
      const Bytes& block = out_[rank_of(member)];
      Piece piece = piece_at(block.size, team_.slot_bytes(), step);
      if (member == me_ || piece.size == 0) continue;
      std::memcpy(static_cast<std::byte*>(block.data) + piece.first, slot_of(member, step),
                  piece.size);
      count_shm_copy(piece.size);
    }
  }

 private:
  const ConstBytes in_;
  const std::vector<Bytes> out_;
};

class NetAllgather final : public NetExchange {
 public:
  NetAllgather(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
               ConstBytes in, std::vector<Bytes> out)
      : NetExchange(std::move(comm), descriptor), in_(in), out_(std::move(out)) {}

  void begin() override {
    const int size = comm().size();
    const int rank = comm().rank();
    copy_own(in_, out_[rank]);
    // Each rank starts with its successor, so that no receiver has all senders at once.
    for (int i = 1; i < size; ++i) {
      int from = (rank - i + size) % size;
      add_receive(from, 0, out_[from].data, out_[from].size);
    }
    for (int i = 1; i < size; ++i) add_send((rank + i) % size, 0, in_.data, in_.size);
  }

 private:
  const ConstBytes in_;
  const std::vector<Bytes> out_;
};

}  // namespace

RequestPtr CommunicatorImpl::allgather(ConstBytes in, std::vector<Bytes> out, DType dtype,
                                       OpOptions options) {
  if (static_cast<int>(out.size()) != size_) {
    return reject(OpKind::kAllgather, "allgather needs an output for each of the " +
                                          std::to_string(size_) + " ranks, and was given " +
                                          std::to_string(out.size()));
  }
  if (out[rank_].size != in.size) {
    return reject(OpKind::kAllgather,
                  "allgather: this rank's input has " + std::to_string(in.size) +
                      " bytes, its place in the output " + std::to_string(out[rank_].size));
  }
  std::uint64_t total = 0;
  for (const Bytes& block : out) total += block.size;
  OpDescriptor descriptor =
      describe(OpKind::kAllgather, dtype, RedOp::kSum, -1, total / size_of(dtype));
  auto self = shared_from_this();
  if (layout_.node_count() == 1 && team_) {
    return submit(std::make_shared<ShmAllgather>(self, descriptor, in, std::move(out)), options);
  }
  return submit(std::make_shared<NetAllgather>(self, descriptor, in, std::move(out)), options);
}

}  // namespace hfreduce
