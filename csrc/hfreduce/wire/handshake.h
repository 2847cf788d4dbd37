// SPDX-License-Identifier: Apache-2.0
//
// Handshake: two processes prove to each other that they know the key of one group, which never
// travels. Both sides are challenged with a fresh nonce, and each answer is bound to its role and
// to both process ids, so that it can be neither replayed nor reflected.
//
//   connector                                       acceptor
//   HELLO {version, group, id, nonce, stream}  -->
//                                              <--  CHALLENGE {id, nonce, mac}   or REFUSE {why}
//   AUTH {mac}          or REFUSE {why}        -->
//                                              <--  WELCOME                      or REFUSE {why}
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/sha256.h"
#include "hfreduce/wire/frame.h"

namespace hfreduce {

using Nonce = std::array<std::uint8_t, 16>;
using GroupKey = std::array<std::uint8_t, 32>;

struct Hello {
  std::uint16_t version = kProtocolVersion;
  std::uint64_t group = 0;
  ProcessId id{};
  Nonce nonce{};
  std::uint8_t stream = 0;  // which of several connections between the two this is
};

struct Challenge {
  ProcessId id{};
  Nonce nonce{};
  ff::Digest mac{};
};

std::string encode(const Hello& hello);
std::string encode(const Challenge& challenge);
ff::Result<Hello> decode_hello(std::string_view payload);
ff::Result<Challenge> decode_challenge(std::string_view payload);

enum class Role { kConnector, kAcceptor };
ff::Digest handshake_mac(const GroupKey& key, Role role, std::uint64_t group,
                         const ProcessId& connector, const ProcessId& acceptor,
                         const Nonce& connector_nonce, const Nonce& acceptor_nonce);

}  // namespace hfreduce
