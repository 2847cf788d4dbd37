// SPDX-License-Identifier: Apache-2.0
//
// Allreduce over several nodes. The message is cut into chunks, the same on all ranks; local rank l
// of a node with L ranks owns the chunks c = l, l + L, ... there. A step of the node's team takes
// the next L chunks, one a member:
//
//   copy in    the chunks of the step that others own                     (published)
//   sum        the own chunk over the node, into a partial                (local)
//   exchange   the partial against the result, with the owners elsewhere  (chunk_exchange.h)
//   publish    the result                                                 (out)
//   copy out   the others' results                                        (done)
//
// Up to kWindow own chunks are in exchange at once, so chunk k + 1 leaves before k has arrived, and
// all local ranks use the network. A node with one rank has no team: its partial is its input, and
// results arrive in place.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "hfreduce/collectives/chunk_exchange.h"
#include "hfreduce/counters.h"
#include "hfreduce/engine/phase.h"

namespace hfreduce {
namespace {

constexpr std::size_t kWindow = 16;  // own chunks in exchange, of a node with one rank
constexpr std::size_t kChunkBytes = std::size_t{128} << 10;
constexpr std::size_t kOneShotBytes = std::size_t{8} << 10;
constexpr int kOneShotNodes = 16;
// Above this many nodes the tree's logarithmic depth beats two hops to everyone.
constexpr int kDirectNodes = 16;

// How the message is cut. Which part an element belongs to depends on its position, the message's
// length and the layout alone. The chunks of the two parts take turns, so that both trees are busy
// at any time: one alone would leave half of the links idle.
struct Cut {
  std::size_t chunk = 1;                       // elements
  std::array<std::size_t, 2> part = {0, 0};    // elements of each part; a tree takes one part each
  std::array<std::size_t, 2> chunks = {0, 0};  // chunks of each part

  std::size_t total() const { return chunks[0] + chunks[1]; }
  struct Piece {
    std::size_t first;
    std::size_t count;
    int part;
  };
  Piece piece(std::size_t index) const {
    const bool paired = index < 2 * chunks[1];  // the first part may have a chunk more
    const int which = paired ? static_cast<int>(index % 2) : 0;
    std::size_t within = (paired ? index / 2 : index - chunks[1]) * chunk;
    return {(which == 0 ? 0 : part[0]) + within, std::min(chunk, part[which] - within), which};
  }
};

Exchange choose(const CommunicatorImpl& comm, std::size_t bytes) {
  int nodes = comm.layout().node_count();
  switch (comm.options().algorithm) {
    case Algorithm::kTree:
      return Exchange::kTree;
    case Algorithm::kDirect:
      return Exchange::kDirect;
    case Algorithm::kAuto:
      break;
  }
  // One chunk then, which must fit into a slot.
  if (bytes <= std::min(kOneShotBytes, comm.slot_bytes()) && nodes <= kOneShotNodes) {
    return Exchange::kOneShot;
  }
  return nodes <= kDirectNodes ? Exchange::kDirect : Exchange::kTree;
}

Cut cut_message(const CommunicatorImpl& comm, Exchange how, const ReduceArgs& args,
                std::size_t slot_bytes) {
  std::size_t most = 1;
  for (const auto& node : comm.layout().nodes) most = std::max(most, node.size());
  std::size_t wanted = comm.options().chunk_bytes != 0 ? comm.options().chunk_bytes : kChunkBytes;
  std::size_t limit = std::max<std::size_t>(1, std::min(wanted, slot_bytes / most) / args.size);
  std::size_t line = std::max<std::size_t>(1, 64 / args.size);
  limit = std::max<std::size_t>(1, limit / line * line);
  Cut cut;
  if (how == Exchange::kTree) {
    std::size_t half = std::min(args.count, ((args.count + 1) / 2 + line - 1) / line * line);
    cut.part = {half, args.count - half};
  } else {
    cut.part = {args.count, 0};
  }
  if (how == Exchange::kOneShot) {
    cut.chunk = std::max<std::size_t>(1, args.count);
  } else {
    // The same number of chunks for every home, or nearly: else one node's link does more.
    auto homes = static_cast<std::size_t>(comm.layout().node_count()) * most;
    std::size_t rounds =
        std::max<std::size_t>(1, (args.count + limit * homes - 1) / (limit * homes));
    std::size_t even = (args.count + homes * rounds - 1) / (homes * rounds);
    cut.chunk = std::clamp<std::size_t>((even + line - 1) / line * line, 1, limit);
  }
  for (int part = 0; part < 2; ++part) {
    cut.chunks[part] = (cut.part[part] + cut.chunk - 1) / cut.chunk;
  }
  // An empty message still has to be waited for.
  if (cut.total() == 0) cut.chunks[0] = 1;
  return cut;
}

class InternodeReduce final : public Op {
 public:
  InternodeReduce(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
                  const ReduceArgs& args)
      : Op(std::move(comm), descriptor), args_(args), team_(this->comm().team()) {
    CommunicatorImpl& group = this->comm();
    members_ = team_ != nullptr ? team_->size() : 1;
    me_ = group.local_rank();
    plan_.how = choose(group, args.count * args.size);
    plan_.comm = &group;
    plan_.op = this;
    plan_.args = &args_;
    plan_.trees = &group.trees();
    plan_.native_wire = group.options().native_wire;
    cut_ = cut_message(group, plan_.how, args, group.slot_bytes());
    plan_.chunk = cut_.chunk;
    auto members = static_cast<std::size_t>(members_);
    steps_ = (cut_.total() + members - 1) / members;
    sources_.resize(members);
  }

  void begin() override {
    if (team_ != nullptr) base_ = comm().take_steps(steps_);
    std::size_t window = std::min(team_ != nullptr ? kSlots : kWindow, steps_);
    std::size_t each = plan_.scratch_bytes();
    // Where this rank does not want the result, it still passes it on.
    std::size_t spare = args_.out == nullptr && team_ == nullptr ? cut_.chunk * args_.size : 0;
    std::byte* at = comm().scratch((each + spare) * window + 64);
    at += (64 - reinterpret_cast<std::uintptr_t>(at) % 64) % 64;
    for (std::size_t i = 0; i < window; ++i) {
      exchanges_.push_back(std::make_unique<ChunkExchange>(plan_, at));
      spare_.push_back(at + each);
      at += each + spare;
    }
  }

  Advance advance() override {
    bool moved = false;
    while (finished_ < begun_ && finish(finished_)) {
      ++finished_;
      moved = true;
    }
    while (team_ != nullptr && copied_out_ < finished_ && copy_out(copied_out_)) {
      ++copied_out_;
      moved = true;
    }
    if ((team_ != nullptr ? copied_out_ : finished_) == steps_) return Advance::kDone;
    if (mismatch_) return Advance::kBlocked;
    for (std::size_t step = finished_; step < begun_; ++step) {
      if (ChunkExchange* exchange = exchange_of(step)) moved |= exchange->advance();
    }
    if (begun_ < std::min(steps_, finished_ + exchanges_.size()) && prepare(begun_)) {
      ++begun_;
      moved = true;
    }
    if (summed_ < begun_ && sum(summed_)) {
      ++summed_;
      moved = true;
    }
    return moved ? Advance::kMoved : Advance::kBlocked;
  }

  void cancel() override {
    for (std::size_t step = finished_; step < begun_; ++step) {
      if (ChunkExchange* exchange = exchange_of(step)) exchange->cancel();
    }
  }

  void blockers(std::vector<int>* out) const override {
    for (std::size_t step = finished_; step < begun_; ++step) {
      ChunkExchange* exchange = exchange_of(step);
      if (exchange != nullptr && exchange->started()) exchange->blockers(out);
    }
    if (team_ == nullptr) return;
    for (int member = 0; member < members_; ++member) {
      if (member == me_) continue;
      bool late_in = summed_ < begun_ && !team_->published(member, base_ + summed_);
      bool late_out = copied_out_ < finished_ && !team_->out(member, base_ + copied_out_);
      if (late_in || late_out) out->push_back(comm().mates()[member]);
    }
  }

 private:
  std::size_t chunk_of(int member, std::size_t step) const {
    return step * static_cast<std::size_t>(members_) + static_cast<std::size_t>(member);
  }
  bool owned(int member, std::size_t step) const { return chunk_of(member, step) < cut_.total(); }
  ChunkExchange* exchange_of(std::size_t step) const {
    return owned(me_, step) ? exchanges_[step % exchanges_.size()].get() : nullptr;
  }
  std::byte* image(int member, std::size_t step, int chunk_member) const {
    return team_->staging(member, base_ + step) +
           static_cast<std::size_t>(chunk_member) * cut_.chunk * args_.size;
  }
  const std::byte* input(const Cut::Piece& piece) const {
    return args_.in + piece.first * args_.size;
  }

  // Opens the exchange of the own chunk and shows the others what is theirs.
  bool prepare(std::size_t step) {
    if (team_ != nullptr && !team_->may_publish(base_ + step)) return false;
    if (ChunkExchange* exchange = exchange_of(step)) {
      std::size_t index = chunk_of(me_, step);
      Cut::Piece piece = cut_.piece(index);
      std::byte* result = args_.out != nullptr ? args_.out + piece.first * args_.size
                                               : spare_[step % spare_.size()];
      if (team_ != nullptr) result = image(me_, step, me_);
      exchange->prepare(index, piece.part, piece.count, result);
    }
    if (team_ == nullptr) return true;
    enter_phase(Phase::kCopyIn);
    std::size_t copied = 0;
    for (int member = 0; member < members_; ++member) {
      if (member == me_ || !owned(member, step)) continue;
      Cut::Piece piece = cut_.piece(chunk_of(member, step));
      if (piece.count == 0) continue;
      std::memcpy(image(me_, step, member), input(piece), piece.count * args_.size);
      copied += piece.count * args_.size;
    }
    live_counters().shm_bytes_copied.fetch_add(copied, std::memory_order_relaxed);
    team_->publish(base_ + step, signature());
    comm().ring_mates();
    return true;
  }

  bool all_published(std::size_t step) {
    for (; arrived_ < members_; ++arrived_) {
      if (arrived_ == me_) continue;
      if (!team_->published(arrived_, base_ + step)) return false;
      if (team_->signature(arrived_, base_ + step) != signature()) {
        mismatch_ = true;
        comm().note_other_call(arrived_, base_ + step);
        return false;
      }
      if (step == 0) team_->note_first_step(arrived_, base_);
    }
    arrived_ = 0;
    return true;
  }

  // Makes the node's partial of the own chunk and sends it on its way.
  bool sum(std::size_t step) {
    if (team_ != nullptr && !all_published(step)) return false;
    ChunkExchange* exchange = exchange_of(step);
    if (exchange == nullptr) return true;
    Cut::Piece piece = cut_.piece(chunk_of(me_, step));
    enter_phase(Phase::kReduce);
    const bool native = plan_.native_partial(comm().node());
    // A single rank's input is the partial, unless it must be widened.
    if (members_ == 1 && native) {
      exchange->start(input(piece));
      return true;
    }
    for (int member = 0; member < members_; ++member) {
      sources_[member] =
          member == me_ ? static_cast<const void*>(input(piece)) : image(member, step, me_);
    }
    if (piece.count > 0) {
      auto kernel = native ? args_.kernels.native_to_native : args_.kernels.native_to_acc;
      kernel(exchange->partial(), nullptr, sources_.data(), members_, piece.count, Scale{});
    }
    exchange->start(exchange->partial());
    return true;
  }

  // The own chunk's result is there and passed on: the node may have it.
  bool finish(std::size_t step) {
    if (step >= summed_) return false;
    if (ChunkExchange* exchange = exchange_of(step)) {
      if (!exchange->finished()) return false;
      Cut::Piece piece = cut_.piece(chunk_of(me_, step));
      if (team_ != nullptr && args_.out != nullptr && piece.count > 0) {
        std::memcpy(args_.out + piece.first * args_.size, image(me_, step, me_),
                    piece.count * args_.size);
      }
    }
    if (team_ != nullptr) {
      team_->set_out(base_ + step);
      comm().ring_mates();
    }
    return true;
  }

  bool copy_out(std::size_t step) {
    for (; args_.out != nullptr && out_seen_ < members_; ++out_seen_) {
      if (out_seen_ == me_ || !owned(out_seen_, step)) continue;
      if (!team_->out(out_seen_, base_ + step)) return false;
      enter_phase(Phase::kCopyOut);
      Cut::Piece piece = cut_.piece(chunk_of(out_seen_, step));
      if (piece.count == 0) continue;
      std::memcpy(args_.out + piece.first * args_.size, image(out_seen_, step, out_seen_),
                  piece.count * args_.size);
      live_counters().shm_bytes_copied.fetch_add(piece.count * args_.size,
                                                 std::memory_order_relaxed);
    }
    out_seen_ = 0;
    team_->set_done(base_ + step);
    comm().ring_mates();
    return true;
  }

  const ReduceArgs args_;
  Team* const team_;
  int members_ = 1;
  int me_ = 0;
  ExchangePlan plan_;
  Cut cut_;
  std::size_t steps_ = 0;
  std::uint64_t base_ = 0;
  std::size_t begun_ = 0;       // steps copied in and prepared
  std::size_t summed_ = 0;      // and summed over the node
  std::size_t finished_ = 0;    // and exchanged
  std::size_t copied_out_ = 0;  // and copied out
  int arrived_ = 0;
  int out_seen_ = 0;
  bool mismatch_ = false;
  std::vector<const void*> sources_;
  std::vector<std::unique_ptr<ChunkExchange>> exchanges_;
  std::vector<std::byte*> spare_;
};

}  // namespace

std::shared_ptr<Op> make_internode_reduce(std::shared_ptr<CommunicatorImpl> comm,
                                          const OpDescriptor& descriptor, const ReduceArgs& args) {
  return std::make_shared<InternodeReduce>(std::move(comm), descriptor, args);
}

}  // namespace hfreduce
