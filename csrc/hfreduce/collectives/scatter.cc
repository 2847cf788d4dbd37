// SPDX-License-Identifier: Apache-2.0
//
// Scatter: the root's block r to rank r; all blocks have one size. In a node the root's slot holds
// a piece for each other member.
#include <cstring>

#include "hfreduce/collectives/net_exchange.h"
#include "hfreduce/collectives/shm_exchange.h"

namespace hfreduce {
namespace {

void copy_own(const ConstBytes& in, const Bytes& out) {
  if (out.size > 0 && out.data != in.data) std::memmove(out.data, in.data, out.size);
}

class ShmScatter final : public ShmExchange {
 public:
  ShmScatter(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
             std::vector<ConstBytes> in, Bytes out, int root_member)
      : ShmExchange(std::move(comm), descriptor),
        in_(std::move(in)),
        out_(out),
        root_(root_member),
        piece_(team_.slot_bytes() / static_cast<std::size_t>(members_) / 64 * 64) {
    set_steps(std::max<std::uint64_t>(1, pieces_in(out.size, piece_)));
  }

 protected:
  bool puts(std::uint64_t /*step*/) const override { return me_ == root_; }
  bool wants(int member, std::uint64_t /*step*/) const override {
    return member == root_ && me_ != root_;
  }
  void put_in(std::uint64_t step, std::byte* slot) override {
    Piece piece = piece_at(out_.size, piece_, step);
    for (int member = 0; member < members_; ++member) {
      if (member == me_ || piece.size == 0) continue;
      std::memcpy(slot + piece_ * static_cast<std::size_t>(member),
                  static_cast<const std::byte*>(in_[rank_of(member)].data) + piece.first,
                  piece.size);
      count_shm_copy(piece.size);
    }
    if (step == 0) copy_own(in_[rank_of(me_)], out_);
  }
  void take_out(std::uint64_t step) override {
    if (me_ == root_) return;
    Piece piece = piece_at(out_.size, piece_, step);
    if (piece.size == 0) return;
    std::memcpy(static_cast<std::byte*>(out_.data) + piece.first,
                slot_of(root_, step) + piece_ * static_cast<std::size_t>(me_), piece.size);
    count_shm_copy(piece.size);
  }

 private:
  const std::vector<ConstBytes> in_;
  const Bytes out_;
  const int root_;
  const std::size_t piece_;  // bytes
};

class NetScatter final : public NetExchange {
 public:
  NetScatter(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
             std::vector<ConstBytes> in, Bytes out)
      : NetExchange(std::move(comm), descriptor), in_(std::move(in)), out_(out) {}

  void begin() override {
    const int root = descriptor().root;
    if (comm().rank() != root) {
      add_receive(root, 0, out_.data, out_.size);
      return;
    }
    for (int rank = 0; rank < comm().size(); ++rank) {
      if (rank != root) {
        add_send(rank, 0, in_[rank].data, in_[rank].size);
      } else {
        copy_own(in_[rank], out_);
      }
    }
  }

 private:
  const std::vector<ConstBytes> in_;
  const Bytes out_;
};

}  // namespace

RequestPtr CommunicatorImpl::scatter(std::vector<ConstBytes> in, Bytes out, DType dtype, int root,
                                     OpOptions options) {
  if (ff::Status status = check_root(root); !status) {
    return failed_request(shared_from_this(), OpKind::kScatter, status);
  }
  if (rank_ == root && static_cast<int>(in.size()) != size_) {
    return reject(OpKind::kScatter,
                  "scatter needs an input for each of the " + std::to_string(size_) +
                      " ranks at the root, and was given " + std::to_string(in.size()));
  }
  for (std::size_t i = 0; rank_ == root && i < in.size(); ++i) {
    if (in[i].size == out.size) continue;
    return reject(OpKind::kScatter, "scatter: input " + std::to_string(i) + " has " +
                                        std::to_string(in[i].size) + " bytes, the output " +
                                        std::to_string(out.size) + "; all must be equal");
  }
  OpDescriptor descriptor =
      describe(OpKind::kScatter, dtype, RedOp::kSum, root, out.size / size_of(dtype));
  auto self = shared_from_this();
  if (layout_.node_count() == 1 && team_) {
    return submit(
        std::make_shared<ShmScatter>(self, descriptor, std::move(in), out, layout_.local_of[root]),
        options);
  }
  return submit(std::make_shared<NetScatter>(self, descriptor, std::move(in), out), options);
}

}  // namespace hfreduce
