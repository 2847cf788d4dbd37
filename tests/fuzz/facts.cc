// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/bootstrap/facts.h"

#include "target.h"

// Records of other ranks in the store.
FUZZ_TARGET(facts) {
  using namespace hfreduce;
  const std::string_view text = fuzz::text_of(data, size);
  if (auto facts = RankFacts::decode(text)) {
    fuzz::require(facts->chunk_bytes <= kMostChunkBytes);
    fuzz::require(RankFacts::decode(facts->encode()).has_value());
  }
  if (auto links = RankLinks::decode(text)) {
    fuzz::require(RankLinks::decode(links->encode()).has_value());
  }
  return 0;
}
