// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/wire/handshake.h"

#include "base/bytes.h"
#include "hfreduce/options.h"

namespace hfreduce {

using ff::Code;

std::string encode(const Hello& hello) {
  ff::ByteWriter out;
  out.number(hello.version);
  out.number(hello.group);
  out.raw(hello.id);
  out.raw(hello.nonce);
  out.number(hello.stream);
  return out.take();
}

std::string encode(const Challenge& challenge) {
  ff::ByteWriter out;
  out.raw(challenge.id);
  out.raw(challenge.nonce);
  out.raw(challenge.mac);
  return out.take();
}

ff::Result<Hello> decode_hello(std::string_view payload) {
  ff::ByteReader in(payload);
  Hello hello;
  hello.version = in.number<std::uint16_t>();
  // Only the version keeps its place for ever; the rest is read once the version is known.
  if (in.ok() && hello.version != kProtocolVersion) {
    return ff::fail(Code::kRefused, "protocol version " + std::to_string(hello.version) +
                                        " meets version " + std::to_string(kProtocolVersion) +
                                        ": install the same hfreduce on all ranks");
  }
  hello.group = in.number<std::uint64_t>();
  hello.id = in.raw<16>();
  hello.nonce = in.raw<16>();
  hello.stream = in.number<std::uint8_t>();
  if (!in.complete() || hello.stream >= kMostStreams) {
    return ff::fail(Code::kRefused, "a malformed greeting");
  }
  return hello;
}

ff::Result<Challenge> decode_challenge(std::string_view payload) {
  ff::ByteReader in(payload);
  Challenge challenge;
  challenge.id = in.raw<16>();
  challenge.nonce = in.raw<16>();
  challenge.mac = in.raw<32>();
  if (!in.complete()) return ff::fail(Code::kRefused, "a malformed challenge");
  return challenge;
}

ff::Digest handshake_mac(const GroupKey& key, Role role, std::uint64_t group,
                         const ProcessId& connector, const ProcessId& acceptor,
                         const Nonce& connector_nonce, const Nonce& acceptor_nonce) {
  ff::ByteWriter out;
  out.text(role == Role::kConnector ? "hfreduce connector" : "hfreduce acceptor");
  out.number(kProtocolVersion);
  out.number(group);
  out.raw(connector);
  out.raw(acceptor);
  out.raw(connector_nonce);
  out.raw(acceptor_nonce);
  return ff::hmac_sha256({reinterpret_cast<const char*>(key.data()), key.size()}, out.take());
}

}  // namespace hfreduce
