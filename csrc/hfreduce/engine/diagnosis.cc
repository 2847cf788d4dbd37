// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace hfreduce {

using ff::Code;
using ff::Status;

Diagnosis::Diagnosis(Why why, std::string title, std::uint64_t sequence,
                     std::chrono::milliseconds timeout, ff::TimePoint now)
    : why_(why), title_(std::move(title)), sequence_(sequence), timeout_(timeout), started_(now) {}

bool Diagnosis::complete(ff::TimePoint now) const {
  bool all =
      std::all_of(asked_.begin(), asked_.end(), [&](int rank) { return reports_.count(rank) > 0; });
  return all || now - started_ >= kPatience;
}

Status Diagnosis::timed_out(const std::vector<int>& blockers, const Words& words,
                            std::vector<int>* blamed) const {
  // Whoever has entered and waits in turn passes the blame on.
  std::set<int> seen(blockers.begin(), blockers.end());
  std::deque<int> open(blockers.begin(), blockers.end());
  std::string missing;
  std::string waiting;
  while (!open.empty()) {
    int rank = open.front();
    open.pop_front();
    auto report = reports_.find(rank);
    std::string line;
    if (report == reports_.end()) {
      line = fmt::format("\n  {} {}", words.name(rank), words.silence(rank));
    } else if (sequence_ != 0 && report->second.last < sequence_) {
      auto last = report->second.at(report->second.last);
      line = fmt::format("\n  {} is alive but has not entered {}; its last call is {}",
                         words.name(rank), title_,
                         last ? fmt::format("#{} {}", report->second.last, last->to_string())
                              : std::string("none"));
    } else {
      for (std::int32_t next : report->second.waiting_for) {
        if (seen.insert(next).second) open.push_back(next);
      }
      waiting += fmt::format("\n  {} is alive and has entered", words.name(rank));
      continue;
    }
    missing += line;
    blamed->push_back(rank);
  }
  if (missing.empty()) {
    missing = waiting;
    blamed->assign(blockers.begin(), blockers.end());
  }
  return Status(Code::kTimeout,
                fmt::format("{} timed out after {} ms; waiting for:{}", title_, timeout_.count(),
                            missing.empty() ? " nobody" : missing));
}

Status Diagnosis::mismatched(int me, const CallLog& mine, const Words& words) const {
  std::uint64_t first = 0;
  for (const auto& [rank, report] : reports_) {
    for (std::uint64_t s = report.first; s <= std::min(report.last, mine.last()); ++s) {
      auto own = mine.at(s);
      if (own && *own != *report.at(s) && (first == 0 || s < first)) first = s;
    }
  }
  if (first == 0) return {};
  auto row = [&](int rank, const std::optional<OpDescriptor>& op) {
    return fmt::format("\n  {:<32} {}", words.name(rank), op ? op->to_string() : "not known");
  };
  std::map<int, std::string> rows;
  rows[me] = row(me, mine.at(first));
  for (const auto& [rank, report] : reports_) rows[rank] = row(rank, report.at(first));
  std::string table;
  for (const auto& [rank, text] : rows) table += text;
  return Status(Code::kMismatch,
                fmt::format("the ranks called different operations as #{}:{}", first, table),
                {{"seq", std::to_string(first)}});
}

}  // namespace hfreduce
