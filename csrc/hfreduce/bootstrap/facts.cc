// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/bootstrap/facts.h"

#include <unistd.h>

#include <array>
#include <fstream>

#include "base/bytes.h"

namespace hfreduce {
namespace {
constexpr std::uint32_t kMostAddresses = 256;
constexpr std::uint32_t kMostRanks = 1 << 16;
}  // namespace

std::string RankFacts::encode() const {
  ff::ByteWriter out;
  out.number(version);
  out.raw(id);
  out.text(host);
  out.number(pid);
  out.text(boot_id);
  out.text(node);
  out.text(zone);
  out.number(static_cast<std::uint8_t>(shm));
  out.text(unix_name);
  out.raw(proof);
  out.number(static_cast<std::uint32_t>(addresses.size()));
  for (const std::string& address : addresses) out.text(address);
  out.number(group);
  out.raw(key);
  out.number(algorithm);
  out.number(chunk_bytes);
  out.number(streams);
  out.number(static_cast<std::uint8_t>(native_wire));
  return out.take();
}

ff::Result<RankFacts> RankFacts::decode(std::string_view text) {
  ff::ByteReader in(text);
  RankFacts facts;
  facts.version = in.number<std::uint16_t>();
  if (in.ok() && facts.version != kProtocolVersion) {
    return ff::fail(ff::Code::kRefused, "it speaks protocol version " +
                                            std::to_string(facts.version) + ", this rank version " +
                                            std::to_string(kProtocolVersion) +
                                            ": install the same hfreduce on all ranks");
  }
  facts.id = in.raw<16>();
  facts.host = in.text();
  facts.pid = in.number<std::int64_t>();
  facts.boot_id = in.text();
  facts.node = in.text();
  facts.zone = in.text();
  facts.shm = in.number<std::uint8_t>() != 0;
  facts.unix_name = in.text();
  facts.proof = in.raw<16>();
  auto count = in.number<std::uint32_t>();
  if (count > kMostAddresses) count = 0;
  for (std::uint32_t i = 0; i < count; ++i) facts.addresses.push_back(in.text());
  facts.group = in.number<std::uint64_t>();
  facts.key = in.raw<32>();
  facts.algorithm = in.number<std::uint8_t>();
  facts.chunk_bytes = in.number<std::uint64_t>();
  facts.streams = in.number<std::uint8_t>();
  facts.native_wire = in.number<std::uint8_t>() != 0;
  // What all ranks go by is made sure of by all.
  bool sound = facts.algorithm <= static_cast<std::uint8_t>(Algorithm::kTree) &&
               facts.chunk_bytes <= kMostChunkBytes && facts.streams >= 1 &&
               facts.streams <= kMostStreams;
  if (!in.complete() || !sound) {
    return ff::fail(ff::Code::kRefused, "its record in the store is malformed");
  }
  return facts;
}

std::string RankLinks::encode() const {
  ff::ByteWriter out;
  out.number(static_cast<std::uint32_t>(shares.size()));
  for (std::int32_t rank : shares) out.number(rank);
  out.text(std::string_view(failure).substr(0, 4000));
  return out.take();
}

ff::Result<RankLinks> RankLinks::decode(std::string_view text) {
  ff::ByteReader in(text);
  RankLinks links;
  auto count = in.number<std::uint32_t>();
  if (count > kMostRanks) count = 0;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    links.shares.push_back(in.number<std::int32_t>());
  }
  links.failure = in.text();
  if (!in.complete()) return ff::fail(ff::Code::kRefused, "its record in the store is malformed");
  return links;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace hfreduce
