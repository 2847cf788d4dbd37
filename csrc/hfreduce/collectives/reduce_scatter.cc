// SPDX-License-Identifier: Apache-2.0
//
// Reduce-scatter: rank r gets the reduction of everybody's block r. In a node a member's slot holds
// a piece of its block for each other member; each reduces its own piece from all slots. Between
// nodes each rank sends its blocks to their owners, who add them in order of rank.
#include <cstring>

#include "hfreduce/collectives/allreduce.h"
#include "hfreduce/collectives/net_exchange.h"
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
      sources_[member] = member == me_ ? own + piece.first
                                       : slot_of(member, step) +
                                             piece_ * static_cast<std::size_t>(me_);
    }
    args_.kernels.native_to_native(static_cast<std::byte*>(args_.out.data) + piece.first, nullptr,
                                   sources_.data(), members_, piece.size / args_.size,
                                   args_.scale);
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
    std::size_t block = args_.out.size;
    wide_ = descriptor().redop == RedOp::kPremulSum && args_.kernels.acc_size != args_.size;
    std::size_t unit = wide_ ? args_.kernels.acc_size : args_.size;
    std::size_t count = block / args_.size;
    received_ = std::make_unique<std::byte[]>(count * unit * static_cast<std::size_t>(size));
    for (int i = 1; i < size; ++i) {
      int from = (rank - i + size) % size;
      add_receive(from, 0, place(from, count * unit), count * unit);
    }
    multiply();
    for (int i = 1; i < size; ++i) {
      int to = (rank + i) % size;
      const ConstBytes& source = args_.in[to];
      if (scaled_.empty()) {
        add_send(to, 0, source.data, source.size);
      } else {
        add_send(to, 0, scaled_[to].get(), source.size / args_.size * unit);
      }
    }
  }

 protected:
  bool finish_stage() override {
    std::size_t count = args_.out.size / args_.size;
    std::size_t unit = wide_ ? args_.kernels.acc_size : args_.size;
    if (count == 0) return true;
    std::vector<const void*> sources;
    for (int rank = 0; rank < comm().size(); ++rank) {
      bool own = rank == comm().rank();
      if (!own) {
        sources.push_back(place(rank, count * unit));
      } else if (scaled_.empty()) {
        sources.push_back(args_.in[rank].data);
      } else {
        sources.push_back(scaled_[rank].get());
      }
    }
    Scale last;
    last.after = args_.scale.after;
    auto kernel = wide_ ? args_.kernels.acc_to_native : args_.kernels.native_to_native;
    kernel(args_.out.data, nullptr, sources.data(), comm().size(), count, last);
    return true;
  }

 private:
  std::byte* place(int rank, std::size_t bytes) const {
    return received_.get() + static_cast<std::size_t>(rank) * bytes;
  }

  // PREMUL_SUM: the factor is this rank's own, so it is applied before anything leaves, in the
  // accumulator's type so that there is still one rounding.
  void multiply() {
    if (descriptor().redop != RedOp::kPremulSum) return;
    Scale factor;
    factor.before = args_.scale.before;
    for (const ConstBytes& block : args_.in) {
      std::size_t count = block.size / args_.size;
      auto scaled = std::make_unique<std::byte[]>(count * args_.kernels.acc_size);
      const void* source = block.data;
      if (count > 0) {
        args_.kernels.native_to_acc(scaled.get(), nullptr, &source, 1, count, factor);
      }
      scaled_.push_back(std::move(scaled));
    }
  }

  const ScatterArgs args_;
  bool wide_ = false;
  std::unique_ptr<std::byte[]> received_;
  std::vector<std::unique_ptr<std::byte[]>> scaled_;
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
  if (ff::Status status =
          prepare_reduction(dtype, reduction, size_, &args.kernels, &args.scale);
      !status) {
    return failed_request(shared_from_this(), OpKind::kReduceScatter, status);
  }
  std::uint64_t total = 0;
  for (const ConstBytes& block : in) total += block.size;
  OpDescriptor descriptor =
      describe(OpKind::kReduceScatter, dtype, reduction.op, -1, total / args.size);
  args.in = std::move(in);
  args.out = out;
  auto self = shared_from_this();
  if (size_ == 1) {
    ReduceArgs lone;
    lone.in = static_cast<const std::byte*>(args.in[0].data);
    lone.out = static_cast<std::byte*>(out.data);
    lone.size = args.size;
    lone.count = out.size / args.size;
    lone.kernels = args.kernels;
    lone.scale = args.scale;
    return submit(make_lone_reduce(self, descriptor, lone), options);
  }
  if (layout_.node_count() == 1) {
    return submit(std::make_shared<ShmReduceScatter>(self, descriptor, std::move(args)), options);
  }
  return submit(std::make_shared<NetReduceScatter>(self, descriptor, std::move(args)), options);
}

}  // namespace hfreduce
