// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/cause.h"

#include <algorithm>

#include "base/bytes.h"

namespace hfreduce {

using ff::Code;
using ff::Status;

namespace {
constexpr std::size_t kLongestMessage = 3000;
}  // namespace

std::string encode_cause(const Status& cause) {
  ff::ByteWriter out;
  out.number(static_cast<std::uint8_t>(cause.code()));
  out.text(std::string_view(cause.message()).substr(0, kLongestMessage));
  std::size_t facts = std::min<std::size_t>(cause.context().size(), 12);
  out.number(static_cast<std::uint8_t>(facts));
  for (std::size_t i = 0; i < facts; ++i) {
    out.text(std::string_view(cause.context()[i].first).substr(0, 32));
    out.text(std::string_view(cause.context()[i].second).substr(0, 48));
  }
  return out.take();
}

Status decode_cause(std::string_view payload) {
  ff::ByteReader in(payload);
  auto code = in.number<std::uint8_t>();
  std::string message = in.text();
  auto facts = in.number<std::uint8_t>();
  Status::Context context;
  for (int i = 0; i < facts && in.ok(); ++i) {
    std::string key = in.text(64);
    context.emplace_back(std::move(key), in.text(64));
  }
  bool known = code > 0 && code <= static_cast<std::uint8_t>(Code::kInternal);
  if (!in.complete() || !known) {
    return Status(Code::kAborted, "a peer gave up on the group, and its reason is malformed");
  }
  return Status(static_cast<Code>(code), std::move(message), std::move(context));
}

}  // namespace hfreduce
