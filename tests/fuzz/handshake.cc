// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/wire/handshake.h"

#include "target.h"

// What strangers send before they have proven anything. What decodes is what encodes to the same.
FUZZ_TARGET(handshake) {
  using namespace hfreduce;
  const std::string_view text = fuzz::text_of(data, size);
  if (auto hello = decode_hello(text)) fuzz::require(encode(*hello) == text);
  if (auto challenge = decode_challenge(text)) fuzz::require(encode(*challenge) == text);
  return 0;
}
