// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/cause.h"

#include "hfreduce/wire/frame.h"
#include "target.h"

// Why a group has failed, as another rank tells it: always an error, and fit to be told on.
FUZZ_TARGET(cause) {
  using namespace hfreduce;
  const ff::Status cause = decode_cause(fuzz::text_of(data, size));
  fuzz::require(!cause.ok());
  const std::string again = encode_cause(cause);
  fuzz::require(again.size() <= kControlLimit);
  fuzz::require(decode_cause(again).code() == cause.code());
  return 0;
}
