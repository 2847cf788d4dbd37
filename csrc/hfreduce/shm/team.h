// SPDX-License-Identifier: Apache-2.0
//
// Team: the ranks of one communicator on one node, and the shared memory through which they meet.
//
// All members walk through the same sequence of steps. A step has a slot in each member's ring of
// kSlots: a header line, and staging memory of `slot_bytes`.
//
//   member 0   | head 0 | head 1 | head 2 | head 3 | out | done | staging 0 ... 3 |
//   member 1   | head 0 | head 1 | ...
//
//   publish(t)   the member's contribution to step t stands in its slot t mod kSlots
//   out(t)       its result of step t stands there (all steps before it as well)
//   done(t)      it has read all it wants of steps up to t: others may overwrite their slots
//
// A member may publish step t only when all are done with step t - kSlots. Every line is written by
// one member only. Counters only grow, so a torn or lost update is not possible, and the order of
// reading does not matter.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "hfreduce/shm/segment.h"

namespace hfreduce {

inline constexpr std::size_t kLine = 64;
inline constexpr std::size_t kSlots = 4;
inline constexpr std::size_t kInlineBytes = 40;  // payload that fits into a slot's header line

// In place of a signature: the member has given up on its group, and what stands in its slots is
// not to be used.
inline constexpr std::uint32_t kWithdrawn = 0xffffffff;

// The header line of a slot.
struct alignas(kLine) SlotHead {
  std::atomic<std::uint64_t> step{0};       // 1 + the step published here
  std::atomic<std::uint32_t> signature{0};  // of the operation it belongs to, or kWithdrawn
  std::uint32_t note = 0;                   // the operation's own
  std::byte data[kInlineBytes];
  std::uint64_t offer = 0;  // 1 + offset of the member's buffer in its arena, or 0
};
static_assert(sizeof(SlotHead) == kLine);

// Where a member's buffers lie in its arena, as its slot's header says.
struct Offer {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
};
// The offer of buffers of `bytes` each in an arena of `arena_bytes`, or nothing. The header belongs
// to another process, which is not trusted: each number is read once, then checked.
std::optional<Offer> read_offer(const SlotHead& head, std::size_t bytes, std::size_t arena_bytes);
void write_offer(const Offer& offer, SlotHead* head);

struct alignas(kLine) Counter {
  std::atomic<std::uint64_t> value{0};
};

struct MemberArea {
  std::array<SlotHead, kSlots> heads;
  Counter out;
  Counter done;
};

class Team {
 public:
  static std::size_t segment_bytes(int members, std::size_t slot_bytes);
  Team(std::shared_ptr<Segment> segment, int members, int me, std::size_t slot_bytes);

  int size() const { return members_; }
  int me() const { return me_; }
  std::size_t slot_bytes() const { return slot_bytes_; }

  std::byte* staging(int member, std::uint64_t step) const {
    return staging_ + (static_cast<std::size_t>(member) * kSlots + step % kSlots) * slot_bytes_;
  }
  SlotHead& head(int member, std::uint64_t step) const {
    return areas_[member].heads[step % kSlots];
  }

  // May this member overwrite its slot for `step`?
  bool may_publish(std::uint64_t step);
  // Is `member` done with what stands there?
  bool may_overwrite(int member, std::uint64_t step) const {
    return step < kSlots ||
           areas_[member].done.value.load(std::memory_order_acquire) + kSlots > step;
  }
  void publish(std::uint64_t step, std::uint32_t signature) {
    SlotHead& mine = head(me_, step);
    mine.signature.store(signature, std::memory_order_relaxed);
    mine.step.store(step + 1, std::memory_order_release);
  }
  bool published(int member, std::uint64_t step) const {
    return head(member, step).step.load(std::memory_order_acquire) == step + 1;
  }
  // The signature under which `member` has published `step`.
  std::uint32_t signature(int member, std::uint64_t step) const {
    return head(member, step).signature.load(std::memory_order_relaxed);
  }
  // Takes back all that this member has published: whoever has not used it yet never will.
  void withdraw() {
    for (SlotHead& head : areas_[me_].heads) head.signature.store(kWithdrawn);
  }
  void set_out(std::uint64_t step) {
    areas_[me_].out.value.store(step + 1, std::memory_order_release);
  }
  bool out(int member, std::uint64_t step) const {
    return areas_[member].out.value.load(std::memory_order_acquire) > step;
  }
  void set_done(std::uint64_t step) {
    areas_[me_].done.value.store(step + 1, std::memory_order_release);
  }
  // A member that publishes `step`, the first of its operation, is done with all before it: this
  // spares the reading of its done line.
  void note_first_step(int member, std::uint64_t step) { known_done_[member] = step; }

 private:
  std::shared_ptr<Segment> segment_;
  const int members_;
  const int me_;
  const std::size_t slot_bytes_;
  MemberArea* areas_;
  std::byte* staging_;
  std::vector<std::uint64_t> known_done_;  // steps each member was last seen to be done with
};

}  // namespace hfreduce
