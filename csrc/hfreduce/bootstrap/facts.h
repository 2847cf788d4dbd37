// SPDX-License-Identifier: Apache-2.0
//
// RankFacts: what a rank announces of itself through the store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hfreduce/options.h"
#include "hfreduce/wire/frame.h"
#include "hfreduce/wire/handshake.h"

namespace hfreduce {

struct RankFacts {
  std::uint16_t version = kProtocolVersion;
  ProcessId id{};
  std::string host;
  std::int64_t pid = 0;
  std::string boot_id;  // equal on processes of one running kernel
  std::string node;     // HFREDUCE_NODE
  std::string zone;     // HFREDUCE_ZONE
  bool shm = true;
  std::string unix_name;
  Nonce proof{};                       // stands at the start of its process segment
  std::vector<std::string> addresses;  // "10.0.0.2|4000"

  // Rank 0 decides for all.
  std::uint64_t group = 0;
  GroupKey key{};
  std::uint8_t algorithm = 0;
  std::uint64_t chunk_bytes = 0;
  std::uint8_t streams = 1;
  bool native_wire = false;

  std::string encode() const;
  static ff::Result<RankFacts> decode(std::string_view text);
};

// The second record of a rank: with whom it can share memory, and what kept it from the rest.
struct RankLinks {
  std::vector<std::int32_t> shares;
  std::string failure;  // empty: connected to all

  std::string encode() const;
  static ff::Result<RankLinks> decode(std::string_view text);
};

std::string host_name();
std::string boot_id();

}  // namespace hfreduce
