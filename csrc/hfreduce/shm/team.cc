// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/shm/team.h"

#include <cstring>
#include <new>

namespace hfreduce {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t areas_bytes(int members) {
  std::size_t bytes = sizeof(MemberArea) * static_cast<std::size_t>(members);
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

std::optional<Offer> read_offer(const SlotHead& head, std::size_t bytes, std::size_t arena_bytes) {
  const std::uint64_t in = *static_cast<const volatile std::uint64_t*>(&head.offer);
  Offer offer;
  std::memcpy(&offer.out, head.data, sizeof(offer.out));
  std::atomic_signal_fence(std::memory_order_seq_cst);  // and not again after the checks
  if (in == 0 || bytes > arena_bytes) return std::nullopt;
  offer.in = in - 1;
  const std::size_t last = arena_bytes - bytes;
  if (offer.in > last || offer.out > last) return std::nullopt;
  return offer;
}

void write_offer(const Offer& offer, SlotHead* head) {
  head->offer = offer.in + 1;
  std::memcpy(head->data, &offer.out, sizeof(offer.out));
}

std::size_t Team::segment_bytes(int members, std::size_t slot_bytes) {
  return areas_bytes(members) + static_cast<std::size_t>(members) * kSlots * slot_bytes;
}

// A zeroed segment is a valid initial state, so no member has to come first.
Team::Team(std::shared_ptr<Segment> segment, int members, int me, std::size_t slot_bytes)
    : segment_(std::move(segment)),
      members_(members),
      me_(me),
      slot_bytes_(slot_bytes),
      areas_(std::launder(reinterpret_cast<MemberArea*>(segment_->data()))),
      staging_(segment_->data() + areas_bytes(members)),
      known_done_(static_cast<std::size_t>(members), 0) {}

bool Team::may_publish(std::uint64_t step) {
  if (step < kSlots) return true;
  std::uint64_t needed = step - kSlots + 1;
  for (int member = 0; member < members_; ++member) {
    if (known_done_[member] >= needed) continue;
    known_done_[member] = areas_[member].done.value.load(std::memory_order_acquire);
    if (known_done_[member] < needed) return false;
  }
  return true;
}

}  // namespace hfreduce
