// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/collectives/chunk_exchange.h"

#include <algorithm>
#include <cstring>

#include "hfreduce/collectives/partials.h"
#include "hfreduce/engine/phase.h"

namespace hfreduce {
namespace {

constexpr int kUp = 0;
constexpr int kDown = 1;
constexpr std::size_t kScratchLine = 64;

std::size_t round_up(std::size_t bytes) {
  return (bytes + kScratchLine - 1) / kScratchLine * kScratchLine;
}

}  // namespace

bool ExchangePlan::native_partial(int node) const {
  // Sums of several nodes have no exact form as elements, so in a tree all travel alike.
  if (how == Exchange::kTree) return args->kernels.acc_size == args->size || native_wire;
  return is_partial_native(*comm, args->kernels, args->size, node);
}

std::size_t ExchangePlan::partial_size(int node) const {
  return native_partial(node) ? args->size : args->kernels.acc_size;
}

int ExchangePlan::owner(int node, std::size_t chunk_index) const {
  const std::vector<int>& ranks = comm->layout().nodes[node];
  return ranks[chunk_index % ranks.size()];
}

// This node's partial, one place for each partial to come, and one in which elements are widened.
std::size_t ExchangePlan::scratch_bytes() const {
  auto places = how == Exchange::kTree ? 3 : static_cast<std::size_t>(comm->layout().node_count());
  return (2 * places + 1) * round_up(chunk * std::max(args->size, args->kernels.acc_size));
}

void ChunkExchange::post(int node, int phase, std::byte* data, std::size_t bytes, RecvSlot* slot) {
  slot->done.store(false, std::memory_order_relaxed);
  plan_.comm->inbox().post(plan_.owner(node, index_), plan_.op->sequence(), index_ * 2 + phase,
                           plan_.op->signature(), data, bytes, slot);
}

void ChunkExchange::send(int node, int phase, const std::byte* data, std::size_t bytes) {
  SendSlot& slot = sends_.emplace_back();
  plan_.comm->inbox().send(plan_.owner(node, index_), plan_.op->sequence(), index_ * 2 + phase,
                           plan_.op->descriptor(), plan_.op->signature(), data, bytes, &slot);
}

void ChunkExchange::prepare(std::size_t chunk_index, int tree, std::size_t count,
                            std::byte* result) {
  index_ = chunk_index;
  count_ = count;
  result_ = result;
  partial_ = nullptr;
  started_ = added_ = has_result_ = result_posted_ = false;
  partials_.clear();
  sends_.clear();
  const int me = plan_.comm->node();
  const int nodes = plan_.comm->layout().node_count();
  if (plan_.how == Exchange::kTree) {
    prepare_tree(tree);
    return;
  }
  std::size_t most = 1;
  for (const auto& node : plan_.comm->layout().nodes) most = std::max(most, node.size());
  home_ = plan_.how == Exchange::kOneShot ? me : static_cast<int>(chunk_index / most % nodes);
  if (home_ != me) {
    result_posted_ = true;
    post(home_, kDown, result_, count_ * plan_.args->size, &result_slot_);
    return;
  }
  std::size_t place =
      round_up(plan_.chunk * std::max(plan_.args->size, plan_.args->kernels.acc_size));
  std::byte* at = scratch_ + place;
  for (int node = 0; node < nodes; ++node) {
    if (node == me) continue;
    Incoming& in = partials_.emplace_back();
    in.data = at;
    in.native = plan_.native_partial(node);
    at += place;
    post(node, kUp, in.data, count_ * plan_.partial_size(node), &in.slot);
  }
}

void ChunkExchange::prepare_tree(int tree) {
  place_ = (*plan_.trees)[tree].nodes[plan_.comm->node()];
  std::size_t place =
      round_up(plan_.chunk * std::max(plan_.args->size, plan_.args->kernels.acc_size));
  std::byte* at = scratch_ + place;
  for (int child : place_.children) {
    if (child < 0) continue;
    Incoming& in = partials_.emplace_back();
    in.data = at;
    in.native = plan_.native_partial(child);
    at += place;
    post(child, kUp, in.data, count_ * plan_.partial_size(child), &in.slot);
  }
  if (place_.parent >= 0) {
    result_posted_ = true;
    post(place_.parent, kDown, result_, count_ * plan_.args->size, &result_slot_);
  }
}

void ChunkExchange::start(const std::byte* partial) {
  partial_ = partial;
  started_ = true;
  if (plan_.how == Exchange::kTree) return;
  const int me = plan_.comm->node();
  if (home_ != me) {
    send_partial(home_);
    return;
  }
  if (plan_.how == Exchange::kOneShot) {
    for (int node = 0; node < plan_.comm->layout().node_count(); ++node) {
      if (node != me) send_partial(node);
    }
  }
}

void ChunkExchange::send_partial(int node) {
  send(node, kUp, partial_, count_ * plan_.partial_size(plan_.comm->node()));
}

bool ChunkExchange::all_in() const {
  return std::all_of(partials_.begin(), partials_.end(), [](const Incoming& in) {
    return in.slot.done.load(std::memory_order_acquire);
  });
}

bool ChunkExchange::all_sent() const {
  return std::all_of(sends_.begin(), sends_.end(), [](const SendSlot& slot) {
    return slot.done.load(std::memory_order_acquire);
  });
}

// Adds all partials, in their fixed order, to the result or (inside a tree) to this node's partial.
void ChunkExchange::add_up(bool to_result) {
  const ReduceArgs& args = *plan_.args;
  const bool tree = plan_.how == Exchange::kTree;
  const int me = plan_.comm->node();
  const Partial own{partial_, plan_.native_partial(me)};
  std::vector<Partial> sources;
  if (tree) sources.push_back(own);
  for (std::size_t i = 0; i < partials_.size(); ++i) {
    if (!tree && static_cast<int>(i) == me) sources.push_back(own);
    sources.push_back({partials_[i].data, partials_[i].native});
  }
  if (!tree && me == static_cast<int>(partials_.size())) sources.push_back(own);
  std::size_t place = round_up(plan_.chunk * std::max(args.size, args.kernels.acc_size));
  std::byte* wide = scratch_ + (partials_.size() + 1) * place;
  add_partials(args.kernels, sources, count_, wide, to_result ? result_ : scratch_, to_result,
               args.scale);
  if (!to_result) partial_ = scratch_;
}

bool ChunkExchange::advance() {
  if (plan_.how == Exchange::kTree) return advance_tree();
  if (has_result_) return false;
  if (home_ != plan_.comm->node()) {
    has_result_ = result_slot_.done.load(std::memory_order_acquire);
    return has_result_;
  }
  if (!started_ || !all_in()) return false;
  // The result may take the place of the partial, which others must have got by then.
  if (plan_.how == Exchange::kOneShot && !all_sent()) return false;
  add_up(true);
  has_result_ = true;
  if (plan_.how == Exchange::kDirect) {
    for (int node = 0; node < plan_.comm->layout().node_count(); ++node) {
      if (node != plan_.comm->node()) send(node, kDown, result_, count_ * plan_.args->size);
    }
  }
  return true;
}

bool ChunkExchange::advance_tree() {
  bool moved = false;
  if (started_ && !added_ && all_in()) {
    enter_phase(Phase::kTreeUp);
    added_ = moved = true;
    bool root = place_.parent < 0;
    if (root || !partials_.empty()) add_up(root);
    if (root) {
      has_result_ = true;
    } else {
      send_partial(place_.parent);
    }
  }
  if (result_posted_ && !has_result_ && result_slot_.done.load(std::memory_order_acquire)) {
    has_result_ = moved = true;
  }
  if (moved && has_result_) {
    enter_phase(Phase::kTreeDown);
    for (int child : place_.children) {
      if (child >= 0) send(child, kDown, result_, count_ * plan_.args->size);
    }
  }
  return moved;
}

bool ChunkExchange::finished() const { return has_result_ && all_sent(); }

void ChunkExchange::cancel() {
  Inbox& inbox = plan_.comm->inbox();
  for (Incoming& in : partials_) {
    if (!in.slot.done.load(std::memory_order_acquire)) inbox.cancel(&in.slot);
  }
  if (result_posted_ && !result_slot_.done.load(std::memory_order_acquire)) {
    inbox.cancel(&result_slot_);
  }
  for (SendSlot& slot : sends_) {
    if (!slot.done.load(std::memory_order_acquire)) inbox.cancel(&slot);
  }
}

void ChunkExchange::blockers(std::vector<int>* out) const {
  for (const Incoming& in : partials_) {
    if (!in.slot.done.load(std::memory_order_acquire)) out->push_back(in.slot.rank);
  }
  if (result_posted_ && !has_result_) out->push_back(result_slot_.rank);
  for (const SendSlot& slot : sends_) {
    if (!slot.done.load(std::memory_order_acquire)) out->push_back(slot.rank);
  }
}

}  // namespace hfreduce
