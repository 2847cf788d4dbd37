// SPDX-License-Identifier: Apache-2.0
//
// Reduce-scatter: rank r gets the reduction of everybody's block r. In a node a member's slot holds
// pieces of its blocks for each other member, who adds them up: of the member's own block, and of
// its guests', the blocks of ranks on other nodes for which it acts. Their partial sums then go to
// them, who add those of all nodes in order. So a block crosses the network once for each other
// node.
#include <cstring>

#include "hfreduce/collectives/allreduce.h"
#include "hfreduce/collectives/net_exchange.h"
#include "hfreduce/collectives/partials.h"
#include "hfreduce/collectives/premultiplied.h"
#include "hfreduce/collectives/shm_exchange.h"
#include "hfreduce/collectives/stages.h"

namespace hfreduce {
namespace {

struct ScatterArgs {
  std::vector<ConstBytes> in;
  Bytes out;
  std::size_t size = 0;  // bytes of an element
  Kernels kernels;
  Scale scale;
};

// The sums over this node that go on to other nodes.
struct NodeSums {
  bool native = false;
  std::vector<Bytes> blocks;  // by rank; of those for which this rank acts, and its own
  std::unique_ptr<std::byte[]> memory;
};

class ShmReduceScatter final : public ShmExchange {
 public:
  // `sums` null: there is no other node, and the result goes to args.out.
  ShmReduceScatter(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
                   ScatterArgs args, std::shared_ptr<NodeSums> sums)
      : ShmExchange(std::move(comm), descriptor),
        args_(std::move(args)),
        sums_(std::move(sums)),
        piece_(team_.slot_bytes() / static_cast<std::size_t>(members_) / 64 * 64),
        shares_(static_cast<std::size_t>(members_)),
        sources_(static_cast<std::size_t>(members_)) {
    const Layout& layout = this->comm().layout();
    const int here = this->comm().node();
    for (int rank = 0; rank < this->comm().size(); ++rank) {
      int member =
          layout.local_of[layout.node_of[rank] == here ? rank : layout.host_of(rank, here)];
      shares_[member].strand.add(args_.in[rank].size);
      shares_[member].ranks.push_back(rank);
    }
    std::size_t most = 0;
    for (const Share& share : shares_) most = std::max(most, share.strand.total());
    set_steps(std::max<std::uint64_t>(1, pieces_in(most, piece_)));
  }

 protected:
  bool puts(std::uint64_t /*step*/) const override { return true; }
  bool wants(int /*member*/, std::uint64_t /*step*/) const override { return true; }
  void put_in(std::uint64_t step, std::byte* slot) override {
    for (int member = 0; member < members_; ++member) {
      if (member == me_) continue;
      const Share& share = shares_[member];
      Piece piece = piece_at(share.strand.total(), piece_, step);
      std::byte* to = slot + piece_ * static_cast<std::size_t>(member);
      share.strand.visit(piece, [&](std::size_t block, std::size_t at, std::size_t size) {
        std::memcpy(to, input(share.ranks[block]) + at, size);
        to += size;
      });
      count_shm_copy(piece.size);
    }
  }
  void take_out(std::uint64_t step) override {
    const Share& mine = shares_[me_];
    std::size_t offset = piece_ * static_cast<std::size_t>(me_);
    Piece piece = piece_at(mine.strand.total(), piece_, step);
    mine.strand.visit(piece, [&](std::size_t block, std::size_t at, std::size_t size) {
      int rank = mine.ranks[block];
      for (int member = 0; member < members_; ++member) {
        sources_[member] = member == me_ ? input(rank) + at : slot_of(member, step) + offset;
      }
      add_up(rank, at / args_.size, size / args_.size);
      offset += size;
    });
  }

 private:
  // The blocks that a member adds up.
  struct Share {
    Strand strand;
    std::vector<int> ranks;
  };

  const std::byte* input(int rank) const {
    return static_cast<const std::byte*>(args_.in[rank].data);
  }
  void add_up(int rank, std::size_t first, std::size_t count) {
    const Kernels& kernels = args_.kernels;
    if (!sums_) {
      kernels.native_to_native(static_cast<std::byte*>(args_.out.data) + first * args_.size,
                               nullptr, sources_.data(), members_, count, args_.scale);
      return;
    }
    std::size_t size = sums_->native ? args_.size : kernels.acc_size;
    auto kernel = sums_->native ? kernels.native_to_native : kernels.native_to_acc;
    kernel(static_cast<std::byte*>(sums_->blocks[rank].data) + first * size, nullptr,
           sources_.data(), members_, count, Scale{});
  }

  const ScatterArgs args_;
  const std::shared_ptr<NodeSums> sums_;
  const std::size_t piece_;    // bytes
  std::vector<Share> shares_;  // by member
  std::vector<const void*> sources_;
};

class NetReduceScatter final : public NetExchange {
 public:
  NetReduceScatter(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
                   ScatterArgs args, std::shared_ptr<NodeSums> sums)
      : NetExchange(std::move(comm), descriptor), args_(std::move(args)), sums_(std::move(sums)) {}

  void begin() override {
    const Layout& layout = comm().layout();
    const int here = comm().node();
    const int nodes = layout.node_count();
    const int rank = comm().rank();
    const std::size_t count = args_.out.size / args_.size;
    place_ = (count * std::max(args_.size, args_.kernels.acc_size) + 63) / 64 * 64;
    // A place for each node's partial, and one in which it may be widened.
    received_ = std::make_unique<std::byte[]>(2 * place_ * static_cast<std::size_t>(nodes));
    for (int i = 1; i < nodes; ++i) {
      int node = (here - i + nodes) % nodes;
      std::size_t size = is_native(node) ? args_.size : args_.kernels.acc_size;
      add_receive(layout.host_of(rank, node), 0, place_of(node), count * size);
    }
    for (int i = 1; i < nodes; ++i) {
      for (int guest : layout.nodes[(here + i) % nodes]) {
        if (layout.host_of(guest, here) != rank) continue;
        add_send(guest, 0, sums_->blocks[guest].data, sums_->blocks[guest].size);
      }
    }
  }

 protected:
  bool finish_stage() override {
    std::vector<Partial> partials;
    for (int node = 0; node < comm().layout().node_count(); ++node) {
      const std::byte* data = node == comm().node()
                                  ? static_cast<const std::byte*>(sums_->blocks[comm().rank()].data)
                                  : place_of(node);
      partials.push_back({data, is_native(node)});
    }
    std::byte* wide = place_of(comm().layout().node_count());
    if (args_.out.size > 0) {
      add_partials(args_.kernels, partials, args_.out.size / args_.size, wide,
                   static_cast<std::byte*>(args_.out.data), true, args_.scale);
    }
    return true;
  }

 private:
  bool is_native(int node) const {
    return is_partial_native(comm(), args_.kernels, args_.size, node);
  }
  std::byte* place_of(int node) const {
    return received_.get() + static_cast<std::size_t>(node) * place_;
  }

  const ScatterArgs args_;
  const std::shared_ptr<NodeSums> sums_;
  std::size_t place_ = 0;  // bytes
  std::unique_ptr<std::byte[]> received_;
};

std::shared_ptr<NodeSums> make_sums(const CommunicatorImpl& comm, const ScatterArgs& args) {
  const Layout& layout = comm.layout();
  const int here = comm.node();
  auto sums = std::make_shared<NodeSums>();
  sums->native = is_partial_native(comm, args.kernels, args.size, here);
  sums->blocks.resize(args.in.size());
  const bool alone = layout.nodes[here].size() == 1;
  std::size_t total = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    bool mine = layout.node_of[rank] == here ? rank == comm.rank()
                                             : layout.host_of(rank, here) == comm.rank();
    if (!mine) continue;
    std::size_t count = args.in[rank].size / args.size;
    sums->blocks[rank].size = count * (sums->native ? args.size : args.kernels.acc_size);
    // What a single rank has put in is the sum over its node; it is only read.
    if (alone) sums->blocks[rank].data = const_cast<void*>(args.in[rank].data);
    total += (sums->blocks[rank].size + 63) / 64 * 64;
  }
  if (alone) return sums;
  sums->memory = std::make_unique<std::byte[]>(total);
  std::byte* at = sums->memory.get();
  for (Bytes& block : sums->blocks) {
    block.data = at;
    at += (block.size + 63) / 64 * 64;
  }
  return sums;
}

std::shared_ptr<Op> make_reduce_scatter(std::shared_ptr<CommunicatorImpl> comm,
                                        const OpDescriptor& descriptor, const ScatterArgs& args) {
  if (comm->size() == 1) {
    ReduceArgs lone;
    lone.in = static_cast<const std::byte*>(args.in[0].data);
    lone.out = static_cast<std::byte*>(args.out.data);
    lone.size = args.size;
    lone.count = args.out.size / args.size;
    lone.kernels = args.kernels;
    lone.scale = args.scale;
    return make_lone_reduce(std::move(comm), descriptor, lone);
  }
  std::shared_ptr<NodeSums> sums;
  if (comm->layout().node_count() > 1) sums = make_sums(*comm, args);
  std::vector<std::shared_ptr<Op>> stages;
  if (comm->team() != nullptr) {
    stages.push_back(std::make_shared<ShmReduceScatter>(comm, descriptor, args, sums));
  }
  if (sums) stages.push_back(std::make_shared<NetReduceScatter>(comm, descriptor, args, sums));
  return make_stages(std::move(comm), descriptor, StageOrder::kInTurn, std::move(stages));
}

}  // namespace

RequestPtr CommunicatorImpl::reduce_scatter(std::vector<ConstBytes> in, Bytes out, DType dtype,
                                            Reduction reduction, OpOptions options) {
  if (static_cast<int>(in.size()) != size_) {
    return reject(OpKind::kReduceScatter, "reduce_scatter needs an input for each of the " +
                                              std::to_string(size_) + " ranks, and was given " +
                                              std::to_string(in.size()));
  }
  if (in[rank_].size != out.size) {
    return reject(OpKind::kReduceScatter,
                  "reduce_scatter: the output has " + std::to_string(out.size) +
                      " bytes, this rank's block of the input " + std::to_string(in[rank_].size));
  }
  ScatterArgs args;
  args.size = size_of(dtype);
  if (ff::Status status = prepare_reduction(dtype, reduction, size_, &args.kernels, &args.scale);
      !status) {
    return failed_request(shared_from_this(), OpKind::kReduceScatter, status);
  }
  std::uint64_t total = 0;
  for (const ConstBytes& block : in) total += block.size;
  OpDescriptor descriptor =
      describe(OpKind::kReduceScatter, dtype, reduction.op, -1, total / args.size);
  auto self = shared_from_this();
  if (reduction.op == RedOp::kPremulSum) {
    auto sum = [&](std::vector<ConstBytes> wide, Bytes target) {
      ScatterArgs with;
      with.in = std::move(wide);
      with.out = target;
      with.size = args.kernels.acc_size;
      // Cannot fail where PREMUL_SUM is known.
      static_cast<void>(find_kernels(accumulator_of(dtype), RedOp::kSum, &with.kernels));
      return make_reduce_scatter(self, descriptor, with);
    };
    return submit(make_premultiplied(self, descriptor, args.kernels, reduction.factor,
                                     std::move(in), args.size, out, sum),
                  options);
  }
  args.in = std::move(in);
  args.out = out;
  return submit(make_reduce_scatter(self, descriptor, args), options);
}

}  // namespace hfreduce
