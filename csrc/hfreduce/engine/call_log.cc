// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/call_log.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"

namespace hfreduce {

std::optional<OpDescriptor> CallLog::at(std::uint64_t sequence) const {
  if (sequence == 0 || sequence > last_ || sequence + kKept <= last_) return std::nullopt;
  return calls_[sequence % kKept];
}

CallReport CallReport::of(const CallLog& log, std::vector<std::int32_t> waiting_for) {
  CallReport report;
  report.last = log.last();
  report.first = report.last >= CallLog::kKept ? report.last - CallLog::kKept + 1 : 1;
  for (std::uint64_t s = report.first; s <= report.last; ++s) report.calls.push_back(*log.at(s));
  waiting_for.resize(std::min<std::size_t>(waiting_for.size(), 64));
  report.waiting_for = std::move(waiting_for);
  return report;
}

std::optional<OpDescriptor> CallReport::at(std::uint64_t sequence) const {
  if (sequence < first || sequence - first >= calls.size()) return std::nullopt;
  return calls[sequence - first];
}

std::string CallReport::encode() const {
  ff::ByteWriter out;
  out.number(last);
  out.number(first);
  out.number(static_cast<std::uint32_t>(calls.size()));
  out.number(static_cast<std::uint32_t>(waiting_for.size()));
  for (const OpDescriptor& op : calls) {
    out.raw(std::bit_cast<std::array<std::uint8_t, sizeof(OpDescriptor)>>(op));
  }
  for (std::int32_t rank : waiting_for) out.number(rank);
  return out.take();
}

ff::Result<CallReport> CallReport::decode(std::string_view payload, int ranks) {
  ff::ByteReader in(payload);
  CallReport report;
  report.last = in.number<std::uint64_t>();
  report.first = in.number<std::uint64_t>();
  auto calls = in.number<std::uint32_t>();
  auto waiting = in.number<std::uint32_t>();
  if (!in.ok() || calls > CallLog::kKept || waiting > 64) {
    return ff::fail(ff::Code::kRefused, "a malformed report of calls");
  }
  for (std::uint32_t i = 0; i < calls; ++i) {
    report.calls.push_back(std::bit_cast<OpDescriptor>(in.raw<sizeof(OpDescriptor)>()));
  }
  for (std::uint32_t i = 0; i < waiting; ++i) {
    report.waiting_for.push_back(in.number<std::int32_t>());
  }
  // Readers take for granted that all calls from first to last are there.
  bool numbered = report.first > 0 && report.last == report.first - 1 + calls;
  bool members = std::all_of(report.waiting_for.begin(), report.waiting_for.end(),
                             [&](std::int32_t rank) { return rank >= 0 && rank < ranks; });
  if (!in.complete() || !numbered || !members) {
    return ff::fail(ff::Code::kRefused, "a malformed report of calls");
  }
  return report;
}

}  // namespace hfreduce
