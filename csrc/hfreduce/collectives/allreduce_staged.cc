// SPDX-License-Identifier: Apache-2.0
//
// The message in chunks, a step each; a chunk in slices, one a member. A member's slot holds an
// image of the chunk: its contributions to the others' slices, and in the place of its own slice
// the result. So for each chunk a member
//
//   copies in    the others' slices of its input to its slot                     (published)
//   reduces      its own slice, from its input and the others' slots             (out)
//   copies out   the others' slices of the result from their slots               (done)
//
// Traffic of a member for N bytes among L: N read and N written in its own memory, as a copy of the
// message would; what passes through the slots stays in cache, since a slot is used again after
// kSlots chunks.
//
// Where all members' buffers lie in their arenas, which they learn from each other's first header,
// everything after the first chunk is reduced in place: each member reads its slice of all inputs
// and writes it to all outputs, and nothing is copied.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "hfreduce/collectives/allreduce.h"
#include "hfreduce/counters.h"
#include "hfreduce/engine/phase.h"

namespace hfreduce {
namespace {

// A piece of the in-place part: small enough that driving is shared fairly.
constexpr std::size_t kInPlaceBytes = std::size_t{512} << 10;

class StagedReduce final : public Op {
 public:
  StagedReduce(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
               const ReduceArgs& args)
      : Op(std::move(comm), descriptor),
        args_(args),
        team_(*this->comm().team()),
        me_(team_.me()),
        members_(team_.size()),
        chunk_(team_.slot_bytes() / args.size),
        steps_((args.count + chunk_ - 1) / chunk_),
        sources_(static_cast<std::size_t>(members_)) {}

  void begin() override {
    base_ = comm().take_steps(steps_);
    last_step_ = steps_;
  }

  Advance advance() override {
    bool moved = false;
    // The oldest work first: it frees slots and lets others go on.
    if (copied_out_ < reduced_) {
      while (copied_out_ < reduced_ && copy_out(copied_out_)) {
        ++copied_out_;
        moved = true;
      }
      if (moved) comm().ring_mates();
    }
    if (copied_out_ == last_step_ && !in_place_) return Advance::kDone;
    if (in_place_) return advance_in_place(moved);
    if (reduced_ < published_ && reduce(reduced_)) {
      ++reduced_;
      comm().ring_mates();
      moved = true;
    }
    if (mismatch_) return Advance::kBlocked;
    if (published_ < steps_ && !in_place_ && team_.may_publish(base_ + published_)) {
      copy_in(published_);
      ++published_;
      comm().ring_mates();
      moved = true;
    }
    return moved ? Advance::kMoved : Advance::kBlocked;
  }

  void blockers(std::vector<int>* out) const override {
    for (int member = 0; member < members_; ++member) {
      if (member == me_) continue;
      bool late_in = reduced_ < published_ && !team_.published(member, base_ + reduced_);
      bool late_out = copied_out_ < reduced_ && !team_.out(member, base_ + copied_out_);
      bool slow = published_ < steps_ && published_ - copied_out_ >= kSlots;
      if (late_in || late_out || slow) out->push_back(comm().mates()[member]);
    }
  }

 private:
  struct Range {
    std::size_t first;  // elements, from the start of the message
    std::size_t count;
  };

  Range chunk_range(std::size_t step) const {
    std::size_t first = step * chunk_;
    return {first, std::min(chunk_, args_.count - first)};
  }
  // The slice of `member` in `range`; whole lines, so that no two members write to one.
  Range slice(const Range& range, int member) const {
    std::size_t line = std::max<std::size_t>(1, 64 / args_.size);
    auto members = static_cast<std::size_t>(members_);
    std::size_t each = ((range.count + members - 1) / members + line - 1) / line * line;
    std::size_t from = std::min(each * static_cast<std::size_t>(member), range.count);
    std::size_t to = std::min(from + each, range.count);
    return {range.first + from, to - from};
  }
  std::byte* image(int member, std::size_t step, const Range& chunk, const Range& part) const {
    return team_.staging(member, base_ + step) + (part.first - chunk.first) * args_.size;
  }
  void count_copied(std::size_t bytes) const {
    live_counters().shm_bytes_copied.fetch_add(bytes, std::memory_order_relaxed);
  }

  void copy_in(std::size_t step) {
    enter_phase(Phase::kCopyIn);
    Range chunk = chunk_range(step);
    Range mine = slice(chunk, me_);
    std::byte* slot = team_.staging(me_, base_ + step);
    const std::byte* source = args_.in + chunk.first * args_.size;
    std::size_t before = (mine.first - chunk.first) * args_.size;
    std::size_t after = before + mine.count * args_.size;
    std::size_t all = chunk.count * args_.size;
    if (before > 0) std::memcpy(slot, source, before);
    if (after < all) std::memcpy(slot + after, source + after, all - after);
    count_copied(before + all - after);
    if (step == 0) offer_arena();
    team_.publish(base_ + step, signature());
  }

  // Tells the others where in this member's arena its buffers lie, if they do.
  void offer_arena() {
    SlotHead& head = team_.head(me_, base_);
    head.offer = 0;
    if (steps_ < 2 || args_.out == nullptr || args_.root >= 0) return;
    std::size_t bytes = args_.count * args_.size;
    auto in = comm().engine().arena().offset_of(args_.in, bytes);
    auto out = comm().engine().arena().offset_of(args_.out, bytes);
    if (!in || !out) return;
    write_offer({*in, *out}, &head);
  }

  bool all_published(std::size_t step) {
    for (; arrived_ < members_; ++arrived_) {
      if (arrived_ == me_) continue;
      if (!team_.published(arrived_, base_ + step)) return false;
      if (team_.signature(arrived_, base_ + step) != signature()) {
        mismatch_ = true;
        comm().note_other_call(arrived_, base_ + step);
        return false;
      }
      if (step == 0) team_.note_first_step(arrived_, base_);
    }
    arrived_ = 0;
    return true;
  }

  bool reduce(std::size_t step) {
    if (!all_published(step)) return false;
    enter_phase(Phase::kReduce);
    if (step == 0) consider_in_place();
    Range chunk = chunk_range(step);
    Range mine = slice(chunk, me_);
    if (mine.count > 0) {
      for (int member = 0; member < members_; ++member) {
        sources_[member] = member == me_
                               ? static_cast<const void*>(args_.in + mine.first * args_.size)
                               : image(member, step, chunk, mine);
      }
      std::byte* result = image(me_, step, chunk, mine);
      if (args_.out != nullptr) {
        args_.kernels.native_to_native(args_.out + mine.first * args_.size, result, sources_.data(),
                                       members_, mine.count, args_.scale);
      } else {
        args_.kernels.native_to_native(result, nullptr, sources_.data(), members_, mine.count,
                                       args_.scale);
      }
    }
    team_.set_out(base_ + step);
    return true;
  }

  bool copy_out(std::size_t step) {
    if (args_.out != nullptr) {
      Range chunk = chunk_range(step);
      for (; out_seen_ < members_; ++out_seen_) {
        if (out_seen_ == me_) continue;
        if (!team_.out(out_seen_, base_ + step)) return false;
        enter_phase(Phase::kCopyOut);
        Range part = slice(chunk, out_seen_);
        if (part.count == 0) continue;
        std::size_t bytes = part.count * args_.size;
        std::memcpy(args_.out + part.first * args_.size, image(out_seen_, step, chunk, part),
                    bytes);
        count_copied(bytes);
      }
      out_seen_ = 0;
    }
    // A member that does not want the result must still not run ahead of those who read its slot:
    // its done line speaks for its own reading only, and its slot is guarded by theirs.
    team_.set_done(base_ + step);
    return true;
  }

  // ---- in place --------------------------------------------------------------------------------

  void consider_in_place() {
    if (steps_ < 2) return;
    std::vector<std::byte*> ins;
    std::vector<std::byte*> outs;
    for (int member = 0; member < members_; ++member) {
      std::byte* arena = member == me_ ? comm().engine().segment()->data()
                                       : comm().arena_of(comm().mates()[member]);
      std::size_t size = member == me_ ? comm().engine().segment()->size()
                                       : comm().arena_size_of(comm().mates()[member]);
      auto offer = read_offer(team_.head(member, base_), args_.count * args_.size, size);
      if (arena == nullptr || !offer) return;
      ins.push_back(arena + offer->in);
      outs.push_back(arena + offer->out);
    }
    ins_ = std::move(ins);
    outs_ = std::move(outs);
    in_place_ = true;
    // Chunks that were copied in before the headers could be read go their way; the rest follows in
    // place, from the first chunk that no member can have published yet.
    staged_steps_ = std::min<std::size_t>(kSlots, steps_);
  }

  Advance advance_in_place(bool moved);

  const ReduceArgs args_;
  Team& team_;
  const int me_;
  const int members_;
  const std::size_t chunk_;  // elements
  const std::size_t steps_;
  std::uint64_t base_ = 0;
  std::size_t last_step_ = 0;
  std::size_t published_ = 0;
  std::size_t reduced_ = 0;
  std::size_t copied_out_ = 0;
  int arrived_ = 0;
  int out_seen_ = 0;
  bool mismatch_ = false;
  std::vector<const void*> sources_;

  bool in_place_ = false;
  std::size_t staged_steps_ = 0;
  std::size_t in_place_done_ = 0;  // elements of this member's slice of the rest
  bool in_place_out_ = false;
  std::vector<std::byte*> ins_;
  std::vector<std::byte*> outs_;
};

// Steps 0 ... kSlots - 1 are staged by everyone: a member may have published that many before it
// saw the others' offers. Of the remaining steps only the last is used, to say that all is written.
Advance StagedReduce::advance_in_place(bool moved) {
  if (published_ < staged_steps_) {
    if (team_.may_publish(base_ + published_)) {
      copy_in(published_++);
      comm().ring_mates();
      moved = true;
    }
  }
  if (reduced_ < published_ && reduce(reduced_)) {
    ++reduced_;
    comm().ring_mates();
    moved = true;
  }
  Range rest{staged_steps_ * chunk_, args_.count - std::min(args_.count, staged_steps_ * chunk_)};
  Range mine = slice(rest, me_);
  if (in_place_done_ < mine.count) {
    std::size_t piece = std::min(mine.count - in_place_done_, kInPlaceBytes / args_.size);
    std::size_t at = (mine.first + in_place_done_) * args_.size;
    for (int member = 0; member < members_; ++member) sources_[member] = ins_[member] + at;
    std::byte* first = outs_[me_] + at;
    int other = me_ == 0 ? 1 : 0;
    args_.kernels.native_to_native(first, outs_[other] + at, sources_.data(), members_, piece,
                                   args_.scale);
    for (int member = 0; member < members_; ++member) {
      if (member != me_ && member != other) {
        std::memcpy(outs_[member] + at, first, piece * args_.size);
      }
    }
    in_place_done_ += piece;
    moved = true;
  }
  if (copied_out_ == staged_steps_ && in_place_done_ == mine.count) {
    if (steps_ == staged_steps_) {
      live_counters().arena_operations.fetch_add(1, std::memory_order_relaxed);
      return Advance::kDone;
    }
    if (!in_place_out_) {
      team_.set_out(base_ + steps_ - 1);
      comm().ring_mates();
      in_place_out_ = true;
    }
    for (; out_seen_ < members_; ++out_seen_) {
      if (out_seen_ != me_ && !team_.out(out_seen_, base_ + steps_ - 1)) {
        return moved ? Advance::kMoved : Advance::kBlocked;
      }
    }
    team_.set_done(base_ + steps_ - 1);
    comm().ring_mates();
    live_counters().arena_operations.fetch_add(1, std::memory_order_relaxed);
    return Advance::kDone;
  }
  return moved ? Advance::kMoved : Advance::kBlocked;
}

}  // namespace

std::shared_ptr<Op> make_staged_reduce(std::shared_ptr<CommunicatorImpl> comm,
                                       const OpDescriptor& descriptor, const ReduceArgs& args) {
  return std::make_shared<StagedReduce>(std::move(comm), descriptor, args);
}

}  // namespace hfreduce
