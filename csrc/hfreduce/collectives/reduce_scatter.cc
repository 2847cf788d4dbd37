// SPDX-License-Identifier: Apache-2.0
//
// Reduce-scatter: rank r gets the reduction of everybody's block r. In a node a member's slot holds
// a piece of its block for each other member; each reduces its own piece from all slots. Between
// nodes each rank sends its blocks to their owners, who add them in order of rank.
#include <cstring>

#include "hfreduce/collectives/allreduce.h"
#include "hfreduce/collectives/net_exchange.h"
#include "hfreduce/collectives/premultiplied.h"
#include "hfreduce/collectives/shm_exchange.h"

namespace hfreduce {
namespace {

struct ScatterArgs {
  std::vector<ConstBytes> in;
  Bytes out;
  std::size_t size = 0;  // bytes of an element
  Kernels kernels;
  Scale scale;
};

class ShmReduceScatter final : public ShmExchange {
 public:
  ShmReduceScatter(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
                   ScatterArgs args)
      : ShmExchange(std::move(comm), descriptor),
        args_(std::move(args)),
        piece_(team_.slot_bytes() / static_cast<std::size_t>(members_) / 64 * 64),
        sources_(static_cast<std::size_t>(members_)) {
    std::size_t most = 0;
    for (const ConstBytes& block : args_.in) most = std::max(most, block.size);
    set_steps(std::max<std::uint64_t>(1, pieces_in(most, piece_)));
  }

 protected:
  bool puts(std::uint64_t /*step*/) const override { return true; }
  bool wants(int /*member*/, std::uint64_t /*step*/) const override { return true; }
  void put_in(std::uint64_t step, std::byte* slot) override {
    for (int member = 0; member < members_; ++member) {
      const ConstBytes& block = args_.in[rank_of(member)];
      Piece piece = piece_at(block.size, piece_, step);
      if (member == me_ || piece.size == 0) continue;
      std::memcpy(slot + piece_ * static_cast<std::size_t>(member),
                  static_cast<const std::byte*>(block.data) + piece.first, piece.size);
      count_shm_copy(piece.size);
    }
  }
  void take_out(std::uint64_t step) override {
    Piece piece = piece_at(args_.out.size, piece_, step);
    if (piece.size == 0) return;
    const auto* own = static_cast<const std::byte*>(args_.in[rank_of(me_)].data);
    for (int member = 0; member < members_; ++member) {
      sources_[member] = member == me_
                             ? own + piece.first
                             : slot_of(member, step) + piece_ * static_cast<std::size_t>(me_);
    }
    args_.kernels.native_to_native(static_cast<std::byte*>(args_.out.data) + piece.first, nullptr,
                                   sources_.data(), members_, piece.size / args_.size, args_.scale);
  }

 private:
  const ScatterArgs args_;
  const std::size_t piece_;  // bytes
  std::vector<const void*> sources_;
};

class NetReduceScatter final : public NetExchange {
 public:
  NetReduceScatter(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
                   ScatterArgs args)
      : NetExchange(std::move(comm), descriptor), args_(std::move(args)) {}

  void begin() override {
    const int size = comm().size();
    const int rank = comm().rank();
    const std::size_t block = args_.out.size;
    received_ = std::make_unique<std::byte[]>(block * static_cast<std::size_t>(size));
    for (int i = 1; i < size; ++i) {
      int from = (rank - i + size) % size;
      add_receive(from, 0, place(from), block);
    }
    for (int i = 1; i < size; ++i) {
      int to = (rank + i) % size;
      add_send(to, 0, args_.in[to].data, args_.in[to].size);
    }
  }

 protected:
  bool finish_stage() override {
    std::vector<const void*> sources;
    for (int rank = 0; rank < comm().size(); ++rank) {
      sources.push_back(rank == comm().rank() ? args_.in[rank].data : place(rank));
    }
    if (args_.out.size > 0) {
      args_.kernels.native_to_native(args_.out.data, nullptr, sources.data(), comm().size(),
                                     args_.out.size / args_.size, args_.scale);
    }
    return true;
  }

 private:
  std::byte* place(int rank) const {
    return received_.get() + static_cast<std::size_t>(rank) * args_.out.size;
  }

  const ScatterArgs args_;
  std::unique_ptr<std::byte[]> received_;
};

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
  auto make = [&](ScatterArgs with) -> std::shared_ptr<Op> {
    if (size_ == 1) {
      ReduceArgs lone;
      lone.in = static_cast<const std::byte*>(with.in[0].data);
      lone.out = static_cast<std::byte*>(with.out.data);
      lone.size = with.size;
      lone.count = with.out.size / with.size;
      lone.kernels = with.kernels;
      lone.scale = with.scale;
      return make_lone_reduce(self, descriptor, lone);
    }
    if (layout_.node_count() == 1) {
      return std::make_shared<ShmReduceScatter>(self, descriptor, std::move(with));
    }
    return std::make_shared<NetReduceScatter>(self, descriptor, std::move(with));
  };
  if (reduction.op == RedOp::kPremulSum) {
    auto sum = [&](std::vector<ConstBytes> wide, Bytes target) {
      ScatterArgs with;
      with.in = std::move(wide);
      with.out = target;
      with.size = args.kernels.acc_size;
      // Cannot fail where PREMUL_SUM is known.
      static_cast<void>(find_kernels(accumulator_of(dtype), RedOp::kSum, &with.kernels));
      return make(std::move(with));
    };
    return submit(make_premultiplied(self, descriptor, args.kernels, reduction.factor,
                                     std::move(in), args.size, out, sum),
                  options);
  }
  args.in = std::move(in);
  args.out = out;
  return submit(make(std::move(args)), options);
}

}  // namespace hfreduce
