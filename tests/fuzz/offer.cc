// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "hfreduce/shm/team.h"
#include "target.h"

// A slot's header in memory that others write: no offer leads out of the arena.
FUZZ_TARGET(offer) {
  using namespace hfreduce;
  fuzz::Dice dice(data, size);
  const std::uint64_t bytes = dice.word();
  const std::uint64_t arena = dice.word();
  SlotHead head;
  head.offer = dice.word();
  const std::uint64_t out = dice.word();
  std::memcpy(head.data, &out, sizeof(out));
  const auto offer = read_offer(head, bytes, arena);
  if (!offer) return 0;
  fuzz::require(bytes <= arena);
  fuzz::require(offer->in <= arena - bytes && offer->out <= arena - bytes);
  SlotHead again;
  write_offer(*offer, &again);
  fuzz::require(again.offer == head.offer);
  return 0;
}
