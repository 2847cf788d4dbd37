// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): enough for the handshake of a connection, so
// that the library needs no cryptography package at installation.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ff {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view data);
Digest hmac_sha256(std::string_view key, std::string_view data);
// Compares in a time that does not depend on the contents.
bool equal_constant_time(const Digest& a, const Digest& b);

}  // namespace ff
