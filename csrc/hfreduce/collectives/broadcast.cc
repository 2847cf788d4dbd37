// SPDX-License-Identifier: Apache-2.0
//
// Broadcast. Between nodes a binomial tree of one rank a node: in round k, the 2^k nodes that have
// the data send it to as many others. In a node that rank fills its slots and the others empty
// them.
#include <cstring>

#include "hfreduce/collectives/net_exchange.h"
#include "hfreduce/collectives/shm_exchange.h"
#include "hfreduce/collectives/stages.h"

namespace hfreduce {
namespace {

class ShmBroadcast final : public ShmExchange {
 public:
  ShmBroadcast(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
               std::byte* data, std::size_t bytes, int root_member)
      : ShmExchange(std::move(comm), descriptor), data_(data), bytes_(bytes), root_(root_member) {
    set_steps(std::max<std::uint64_t>(1, pieces_in(bytes, team_.slot_bytes())));
  }

 protected:
  bool puts(std::uint64_t /*step*/) const override { return me_ == root_; }
  bool wants(int member, std::uint64_t /*step*/) const override {
    return member == root_ && me_ != root_;
  }
  void put_in(std::uint64_t step, std::byte* slot) override {
    Piece piece = piece_at(bytes_, team_.slot_bytes(), step);
    if (piece.size > 0) std::memcpy(slot, data_ + piece.first, piece.size);
    count_shm_copy(piece.size);
  }
  void take_out(std::uint64_t step) override {
    if (me_ == root_) return;
    Piece piece = piece_at(bytes_, team_.slot_bytes(), step);
    if (piece.size > 0) std::memcpy(data_ + piece.first, slot_of(root_, step), piece.size);
    count_shm_copy(piece.size);
  }

 private:
  std::byte* const data_;
  const std::size_t bytes_;
  const int root_;
};

class NetBroadcast final : public NetExchange {
 public:
  NetBroadcast(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
               std::byte* data, std::size_t bytes)
      : NetExchange(std::move(comm), descriptor), data_(data), bytes_(bytes) {}

  void begin() override {
    if (relative() == 0 || !takes_part()) return;
    int parent = relative() & (relative() - 1);  // without its lowest bit
    add_receive(rank_at(parent), 0, data_, bytes_);
  }

 protected:
  bool finish_stage() override {
    if (sent_ || !takes_part()) return true;
    sent_ = true;
    // The children of r add one bit below r's lowest; the farthest subtree first.
    int nodes = comm().layout().node_count();
    int low = relative() == 0 ? nodes : relative() & -relative();
    int bit = 1;
    while (bit < low && relative() + bit < nodes) bit <<= 1;
    bool any = false;
    for (bit >>= 1; bit > 0; bit >>= 1) {
      if (relative() + bit >= nodes) continue;
      add_send(rank_at(relative() + bit), 0, data_, bytes_);
      any = true;
    }
    return !any;
  }

 private:
  // Nodes are counted from the root's.
  int relative() const {
    const Layout& layout = comm().layout();
    int nodes = layout.node_count();
    return (comm().node() - layout.node_of[descriptor().root] + nodes) % nodes;
  }
  int rank_at(int relative) const {
    const Layout& layout = comm().layout();
    int node = (relative + layout.node_of[descriptor().root]) % layout.node_count();
    return layout.envoy_of(node, descriptor().root);
  }
  bool takes_part() const { return rank_at(relative()) == comm().rank(); }

  std::byte* const data_;
  const std::size_t bytes_;
  bool sent_ = false;
};

}  // namespace

RequestPtr CommunicatorImpl::broadcast(void* data, std::size_t count, DType dtype, int root,
                                       OpOptions options) {
  if (ff::Status status = check_root(root); !status) {
    return failed_request(shared_from_this(), OpKind::kBroadcast, status);
  }
  OpDescriptor descriptor = describe(OpKind::kBroadcast, dtype, RedOp::kSum, root, count);
  auto* bytes = static_cast<std::byte*>(data);
  std::size_t size = count * size_of(dtype);
  auto self = shared_from_this();
  std::vector<std::shared_ptr<Op>> stages;
  if (layout_.node_count() > 1 || !team_) {
    stages.push_back(std::make_shared<NetBroadcast>(self, descriptor, bytes, size));
  }
  if (team_) {
    int envoy = layout_.local_of[layout_.envoy_of(node(), root)];
    stages.push_back(std::make_shared<ShmBroadcast>(self, descriptor, bytes, size, envoy));
  }
  return submit(make_stages(self, descriptor, StageOrder::kInTurn, std::move(stages)), options);
}

}  // namespace hfreduce
