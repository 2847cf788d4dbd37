// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/python.h"

namespace hfreduce::adapter {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

milliseconds until(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(0));
}

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// Waits for `key`, but no longer than the group is whole.
ff::Status get(TorchStore& store, Communicator& communicator, const std::string& key,
               Clock::time_point deadline, std::string* value) {
  while (true) {
    const milliseconds left = std::max(until(deadline), milliseconds(1));
    ff::Status status = store.get(key, std::min(left, milliseconds(1000)), value);
    raise_interrupt();
    stay_if_leaving();
    if (status.code() != ff::Code::kTimeout || Clock::now() >= deadline) return status;
    throw_if_error(communicator.health());
  }
}

ff::Status meet(Communicator& communicator, Clock::time_point deadline) {
  OpOptions options;
  options.timeout = std::max(until(deadline), milliseconds(1));
  options.will_wait = true;
  return communicator.barrier(options)->wait();
}

[[noreturn]] void throw_timeout(std::string message, const std::vector<int>& missing) {
  throw_status(ff::Status(ff::Code::kTimeout, std::move(message),
                          {{"op", "monitored_barrier"}, {"ranks", list(missing)}}));
}

}  // namespace

WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  auto work = new_work(c10d::OpType::BARRIER, Title::kBarrier, options.asyncOp, {});
  return launch(std::move(work), communicator().barrier(op_options(options)));
}

// A barrier for finding out who is missing. Whether all have arrived is settled through the store,
// so that a rank that is missing costs this call only, not the group; when all are there they meet
// in an ordinary barrier. The wording of the errors is that of torch's Gloo, which tools know.
void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const NoGil no_gil;
  group_->check_usable();
  const milliseconds timeout =
      options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  const Clock::time_point deadline = Clock::now() + timeout;
  std::shared_ptr<TorchStore> store;
  std::string place;
  {
    const std::lock_guard lock(mutex_);
    if (!barrier_store_) barrier_store_ = std::make_shared<TorchStore>(store_);
    store = barrier_store_;
    place = "hfreduce/monitored_barrier/" + std::to_string(monitored_barriers_++) + "/";
  }
  const std::string verdict = place + "verdict";

  if (rank_ != 0) {
    throw_if_error(store->set(place + std::to_string(rank_), "here"));
    std::string outcome;
    const ff::Status status = get(*store, communicator(), verdict, deadline, &outcome);
    if (status.ok() && outcome == "all") {
      throw_if_error(meet(communicator(), deadline));
      return;
    }
    throw_timeout("Rank " + std::to_string(rank_) +
                      " successfully reached monitoredBarrier, but received errors while waiting "
                      "for send/recv from rank 0. Please check rank 0 logs for faulty rank. " +
                      (status.ok() ? "Rank 0 says: " + outcome : status.message()),
                  {});
  }

  std::vector<int> missing;
  for (int rank = 1; rank < size_; ++rank) {
    // Zero time is no time to look, but a rank that is known to be missing leaves a moment for
    // each of the others, who may have arrived long ago.
    if (until(deadline) == milliseconds(0) && missing.empty()) {
      std::string message = "Rank 0 timed out in monitoredBarrier after " +
                            std::to_string(timeout.count()) + " ms. Ranks that arrived: 1 to " +
                            std::to_string(rank - 1);
      static_cast<void>(store->set(verdict, message));
      throw_timeout(std::move(message), {});
    }
    std::string here;
    const ff::Status status =
        get(*store, communicator(), place + std::to_string(rank), deadline, &here);
    if (status.ok()) continue;
    missing.push_back(rank);
    if (!wait_all_ranks) break;
  }
  if (!missing.empty()) {
    std::string message = (missing.size() == 1 ? "Rank " : "Ranks ") + list(missing) +
                          " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) +
                          " ms";
    static_cast<void>(store->set(verdict, message));
    throw_timeout(std::move(message), missing);
  }
  throw_if_error(store->set(verdict, "all"));
  throw_if_error(meet(communicator(), deadline));
  // All have read the verdict, or they would not be here.
  for (int rank = 1; rank < size_; ++rank) {
    static_cast<void>(store->remove(place + std::to_string(rank)));
  }
  static_cast<void>(store->remove(verdict));
}

}  // namespace hfreduce::adapter
