// SPDX-License-Identifier: Apache-2.0
//
// Allgather: every rank's block to every rank. Between nodes a block goes to one rank of each other
// node, its guest there; in a node each member then fills its slots with its own block and those of
// its guests, and empties the others'. So a block crosses the network once for each other node.
#include <cstring>

#include "hfreduce/collectives/net_exchange.h"
#include "hfreduce/collectives/shm_exchange.h"
#include "hfreduce/collectives/stages.h"

namespace hfreduce {
namespace {

class ShmAllgather final : public ShmExchange {
 public:
  ShmAllgather(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
               ConstBytes in, const std::vector<Bytes>& out)
      : ShmExchange(std::move(comm), descriptor),
        in_(static_cast<const std::byte*>(in.data)),
        shows_(static_cast<std::size_t>(members_)) {
    const Layout& layout = this->comm().layout();
    const int here = this->comm().node();
    for (int member = 0; member < members_; ++member) add(member, out[rank_of(member)]);
    for (int rank = 0; rank < this->comm().size(); ++rank) {
      if (layout.node_of[rank] == here) continue;
      add(layout.local_of[layout.host_of(rank, here)], out[rank]);
    }
    std::size_t most = 0;
    for (const Show& show : shows_) most = std::max(most, show.strand.total());
    set_steps(std::max<std::uint64_t>(1, pieces_in(most, team_.slot_bytes())));
  }

 protected:
  bool puts(std::uint64_t /*step*/) const override { return true; }
  bool wants(int /*member*/, std::uint64_t /*step*/) const override { return true; }
  void put_in(std::uint64_t step, std::byte* slot) override {
    const Show& mine = shows_[me_];
    Piece piece = piece_at(mine.strand.total(), team_.slot_bytes(), step);
    mine.strand.visit(piece, [&](std::size_t block, std::size_t at, std::size_t size) {
      std::byte* to = mine.blocks[block] + at;
      // The first block is this rank's own, and has yet to come to its place.
      const std::byte* from = block == 0 ? in_ + at : to;
      std::memcpy(slot, from, size);
      if (to != from) std::memcpy(to, from, size);
      slot += size;
    });
    count_shm_copy(piece.size);
  }
  void take_out(std::uint64_t step) override {
    for (int member = 0; member < members_; ++member) {
      if (member == me_) continue;
      const Show& show = shows_[member];
      Piece piece = piece_at(show.strand.total(), team_.slot_bytes(), step);
      const std::byte* slot = slot_of(member, step);
      show.strand.visit(piece, [&](std::size_t block, std::size_t at, std::size_t size) {
        std::memcpy(show.blocks[block] + at, slot, size);
        slot += size;
      });
      count_shm_copy(piece.size);
    }
  }

 private:
  // What a member shows the others, and where that stands here.
  struct Show {
    Strand strand;
    std::vector<std::byte*> blocks;
  };
  void add(int member, const Bytes& block) {
    shows_[member].strand.add(block.size);
    shows_[member].blocks.push_back(static_cast<std::byte*>(block.data));
  }

  const std::byte* const in_;
  std::vector<Show> shows_;  // by member
};

// This rank's block to its hosts elsewhere, and the blocks of its guests from there.
class NetAllgather final : public NetExchange {
 public:
  NetAllgather(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
               ConstBytes in, std::vector<Bytes> out)
      : NetExchange(std::move(comm), descriptor), in_(in), out_(std::move(out)) {}

  void begin() override {
    const Layout& layout = comm().layout();
    const int rank = comm().rank();
    const int here = comm().node();
    const int nodes = layout.node_count();
    if (comm().team() == nullptr && in_.size > 0 && out_[rank].data != in_.data) {
      std::memcpy(out_[rank].data, in_.data, in_.size);
    }
    // Each node starts with its neighbour, so that no receiver has all senders at once.
    for (int i = 1; i < nodes; ++i) {
      for (int guest : layout.nodes[(here - i + nodes) % nodes]) {
        if (layout.host_of(guest, here) == rank) {
          add_receive(guest, 0, out_[guest].data, out_[guest].size);
        }
      }
    }
    for (int i = 1; i < nodes; ++i) {
      add_send(layout.host_of(rank, (here + i) % nodes), 0, in_.data, in_.size);
    }
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
  std::vector<std::shared_ptr<Op>> stages;
  if (layout_.node_count() > 1 || !team_) {
    stages.push_back(std::make_shared<NetAllgather>(self, descriptor, in, out));
  }
  if (team_) stages.push_back(std::make_shared<ShmAllgather>(self, descriptor, in, out));
  return submit(make_stages(self, descriptor, StageOrder::kInTurn, std::move(stages)), options);
}

}  // namespace hfreduce
