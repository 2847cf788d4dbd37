// SPDX-License-Identifier: Apache-2.0
//
// Gather: every rank's block to the root; all blocks have one size.
#include <cstring>

#include "hfreduce/collectives/net_exchange.h"
#include "hfreduce/collectives/shm_exchange.h"

namespace hfreduce {
namespace {

class ShmGather final : public ShmExchange {
 public:
  ShmGather(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor, ConstBytes in,
            std::vector<Bytes> out, int root_member)
      : ShmExchange(std::move(comm), descriptor),
        in_(in),
        out_(std::move(out)),
        root_(root_member) {
    set_steps(std::max<std::uint64_t>(1, pieces_in(in.size, team_.slot_bytes())));
  }

 protected:
  bool puts(std::uint64_t /*step*/) const override { return me_ != root_; }
  bool wants(int member, std::uint64_t /*step*/) const override {
    return me_ == root_ && member != root_;
  }
  void put_in(std::uint64_t step, std::byte* slot) override {
    Piece piece = piece_at(in_.size, team_.slot_bytes(), step);
    const auto* from = static_cast<const std::byte*>(in_.data);
    if (piece.size > 0) std::memcpy(slot, from + piece.first, piece.size);
    count_shm_copy(piece.size);
  }
  void take_out(std::uint64_t step) override {
    if (me_ != root_) return;
    Piece piece = piece_at(in_.size, team_.slot_bytes(), step);
    for (int member = 0; member < members_ && piece.size > 0; ++member) {
      auto* block = static_cast<std::byte*>(out_[rank_of(member)].data);
      const std::byte* from = member == me_ ? static_cast<const std::byte*>(in_.data) + piece.first
                                            : slot_of(member, step);
      if (block + piece.first != from) std::memmove(block + piece.first, from, piece.size);
      count_shm_copy(piece.size);
    }
  }

 private:
  const ConstBytes in_;
  const std::vector<Bytes> out_;
  const int root_;
};

class NetGather final : public NetExchange {
 public:
  NetGather(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor, ConstBytes in,
            std::vector<Bytes> out)
      : NetExchange(std::move(comm), descriptor), in_(in), out_(std::move(out)) {}

  void begin() override {
    const int root = descriptor().root;
    if (comm().rank() != root) {
      add_send(root, 0, in_.data, in_.size);
      return;
    }
    for (int rank = 0; rank < comm().size(); ++rank) {
      if (rank != root) {
        add_receive(rank, 0, out_[rank].data, out_[rank].size);
      } else if (in_.size > 0 && out_[rank].data != in_.data) {
        std::memmove(out_[rank].data, in_.data, in_.size);
      }
    }
  }

 private:
  const ConstBytes in_;
  const std::vector<Bytes> out_;
};

}  // namespace

RequestPtr CommunicatorImpl::gather(ConstBytes in, std::vector<Bytes> out, DType dtype, int root,
                                    OpOptions options) {
  if (ff::Status status = check_root(root); !status) {
    return failed_request(shared_from_this(), OpKind::kGather, status);
  }
  if (rank_ == root && static_cast<int>(out.size()) != size_) {
    return reject(OpKind::kGather,
                  "gather needs an output for each of the " + std::to_string(size_) +
                      " ranks at the root, and was given " + std::to_string(out.size()));
  }
  for (std::size_t i = 0; rank_ == root && i < out.size(); ++i) {
    if (out[i].size == in.size) continue;
    return reject(OpKind::kGather, "gather: output " + std::to_string(i) + " has " +
                                       std::to_string(out[i].size) + " bytes, the input " +
                                       std::to_string(in.size) + "; all must be equal");
  }
  OpDescriptor descriptor =
      describe(OpKind::kGather, dtype, RedOp::kSum, root, in.size / size_of(dtype));
  auto self = shared_from_this();
  if (layout_.node_count() == 1 && team_) {
    return submit(
        std::make_shared<ShmGather>(self, descriptor, in, std::move(out), layout_.local_of[root]),
        options);
  }
  return submit(std::make_shared<NetGather>(self, descriptor, in, std::move(out)), options);
}

}  // namespace hfreduce
