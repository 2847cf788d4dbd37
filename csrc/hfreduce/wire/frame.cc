// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/wire/frame.h"

#include <fmt/format.h>

#include <cstring>

namespace hfreduce {

std::string OpDescriptor::to_string() const {
  std::string text(name_of(kind));
  switch (kind) {
    case OpKind::kNone:
      return "nothing";
    case OpKind::kBarrier:
      return "barrier()";
    case OpKind::kAllreduce:
    case OpKind::kReduce:
    case OpKind::kReduceScatter:
      text += fmt::format("({} {}", name_of(dtype), name_of(redop));
      break;
    default:
      text += fmt::format("({}", name_of(dtype));
  }
  if (count != 0) text += fmt::format(", {} elements", count);
  if (root >= 0) text += fmt::format(", root {}", root);
  return text + ")";
}

std::string to_string(const ProcessId& id) {
  return fmt::format("{:02x}{:02x}{:02x}{:02x}", id[0], id[1], id[2], id[3]);
}

std::uint32_t chain_signature(std::uint32_t before, const OpDescriptor& op) {
  std::uint64_t words[2];
  std::memcpy(words, &op, sizeof(words));
  // Two rounds of a 64-bit multiply-xor mixer: cheap enough for every operation, and one changed
  // bit anywhere changes about half of the result.
  std::uint64_t h = (words[0] ^ before) * 0x9e3779b97f4a7c15ULL;
  h = (h ^ (h >> 32) ^ words[1]) * 0xd6e8feb86659fd93ULL;
  h ^= h >> 32;
  auto folded = static_cast<std::uint32_t>(h ^ (h >> 29));
  // 0 is for no call at all, ~0 for a call that was withdrawn.
  return folded == 0 || folded == ~0U ? 1 : folded;
}

}  // namespace hfreduce
