// SPDX-License-Identifier: Apache-2.0
//
// Diagnosis: before a group fails for a timeout or a mismatch, its other ranks are asked what they
// called and for whom they wait; then the error can name the rank that is really missing, and not
// only the neighbour that happens to be waited for.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "hfreduce/engine/call_log.h"
#include "hfreduce/wire/frame.h"
#include "runtime/clock.h"

namespace hfreduce {

class Diagnosis {
 public:
  enum class Why {
    kTimeout,   // an operation's deadline has passed
    kMismatch,  // a rank was seen to have called something else
    kLook,      // an operation waits for long: have all called the same?
  };
  // Those who have not answered by then are reported as silent.
  static constexpr std::chrono::milliseconds kPatience{400};

  Diagnosis(Why why, std::string title, std::uint64_t sequence, std::chrono::milliseconds timeout,
            ff::TimePoint now);

  Why why() const { return why_; }
  std::uint64_t sequence() const { return sequence_; }
  // True if `rank` is to be asked; each rank once.
  bool ask(int rank) { return asked_.insert(rank).second; }
  void add_report(int rank, CallReport report) { reports_[rank] = std::move(report); }
  bool complete(ff::TimePoint now) const;

  // The verdict on a timeout. `blockers` are the ranks waited for here; `name` and `silence` tell
  // of a rank who it is and what the connection knows of it.
  struct Words {
    std::function<std::string(int rank)> name;
    std::function<std::string(int rank)> silence;
  };
  ff::Status timed_out(const std::vector<int>& blockers, const Words& words,
                       std::vector<int>* blamed) const;
  // The verdict on a mismatch; OK if all calls known are equal.
  ff::Status mismatched(int me, const CallLog& mine, const Words& words) const;

 private:
  const Why why_;
  const std::string title_;
  const std::uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const ff::TimePoint started_;
  std::set<int> asked_;
  std::map<int, CallReport> reports_;
};

}  // namespace hfreduce
