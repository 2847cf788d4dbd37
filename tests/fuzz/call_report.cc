// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "hfreduce/engine/call_log.h"
#include "hfreduce/engine/diagnosis.h"
#include "target.h"

// What another rank says that it has called, and what a diagnosis makes of it.
FUZZ_TARGET(call_report) {
  using namespace hfreduce;
  constexpr int kRanks = 4;
  auto report = CallReport::decode(fuzz::text_of(data, size), kRanks);
  if (!report) return 0;
  fuzz::require(report->encode() == fuzz::text_of(data, size));
  CallLog mine;
  for (std::uint64_t sequence = 1; sequence <= 100; ++sequence) {
    OpDescriptor op;
    op.kind = OpKind::kAllreduce;
    mine.record(sequence, op);
  }
  const Diagnosis::Words words{[](int rank) {
                                 fuzz::require(rank >= 0 && rank < kRanks);
                                 return "rank " + std::to_string(rank);
                               },
                               [](int) { return std::string("is silent"); }};
  Diagnosis diagnosis(Diagnosis::Why::kTimeout, "allreduce #90", 90, std::chrono::milliseconds(1),
                      ff::TimePoint{});
  diagnosis.add_report(1, *report);
  std::vector<int> blamed;
  fuzz::require(!diagnosis.timed_out({1}, words, &blamed).ok());
  static_cast<void>(diagnosis.mismatched(0, mine, words).to_string());
  return 0;
}
