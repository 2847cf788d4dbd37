// SPDX-License-Identifier: Apache-2.0
//
// CallLog: the last operations that a rank called, for the table in a mismatch and for the word
// "has not entered" in a timeout. CallReport is what one rank tells another of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hfreduce/wire/frame.h"

namespace hfreduce {

class CallLog {
 public:
  static constexpr std::size_t kKept = 64;

  void record(std::uint64_t sequence, const OpDescriptor& op) {
    calls_[sequence % kKept] = op;
    last_ = sequence;
  }
  std::uint64_t last() const { return last_; }
  // Nothing if not called yet, or too long ago.
  std::optional<OpDescriptor> at(std::uint64_t sequence) const;

 private:
  std::array<OpDescriptor, kKept> calls_;
  std::uint64_t last_ = 0;
};

struct CallReport {
  std::uint64_t last = 0;                 // sequence of the last call
  std::uint64_t first = 1;                // sequence of calls[0]
  std::vector<OpDescriptor> calls;        // first, first + 1, ..., last
  std::vector<std::int32_t> waiting_for;  // ranks it waits for

  static CallReport of(const CallLog& log, std::vector<std::int32_t> waiting_for);
  std::optional<OpDescriptor> at(std::uint64_t sequence) const;
  std::string encode() const;
  // Of a rank in a group of `ranks`.
  static ff::Result<CallReport> decode(std::string_view payload, int ranks);
};

}  // namespace hfreduce
