// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/collectives/shm_exchange.h"

#include "hfreduce/counters.h"
#include "hfreduce/engine/phase.h"

namespace hfreduce {

void count_shm_copy(std::size_t bytes) {
  live_counters().shm_bytes_copied.fetch_add(bytes, std::memory_order_relaxed);
}

ShmExchange::ShmExchange(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor)
    : Op(std::move(comm), descriptor),
      team_(*this->comm().team()),
      me_(team_.me()),
      members_(team_.size()) {}

void ShmExchange::begin() { base_ = comm().take_steps(steps_); }

void ShmExchange::add_steps(std::uint64_t more) {
  comm().take_steps(more);  // they follow base_, since nothing else runs meanwhile
  steps_ += more;
}

void ShmExchange::report_mismatch(int member, const std::string& what) {
  mismatch_ = true;
  comm().note_mismatch(rank_of(member), what);
}

Advance ShmExchange::advance() {
  bool moved = false;
  while (taken_ < steps_ && !mismatch_) {
    // What this member puts in comes first: its own memory may be both source and target.
    if (puts(taken_) && put_ <= taken_) break;
    for (; arrived_ < members_; ++arrived_) {
      if (arrived_ == me_ || !wants(arrived_, taken_)) continue;
      if (!team_.published(arrived_, base_ + taken_)) break;
      if (team_.signature(arrived_, base_ + taken_) != signature()) {
        mismatch_ = true;
        comm().note_other_call(arrived_, base_ + taken_);
        return Advance::kBlocked;
      }
      if (taken_ == 0) team_.note_first_step(arrived_, base_);
    }
    if (arrived_ < members_) break;
    arrived_ = 0;
    enter_phase(Phase::kCopyOut);
    take_out(taken_);
    if (mismatch_) return Advance::kBlocked;
    team_.set_done(base_ + taken_);
    ++taken_;
    moved = true;
  }
  if (put_ < taken_) put_ = taken_;
  if (put_ < steps_ && !mismatch_) {
    if (!puts(put_)) {
      ++put_;
      moved = true;
    } else if (team_.may_publish(base_ + put_)) {
      enter_phase(Phase::kCopyIn);
      put_in(put_, team_.staging(me_, base_ + put_));
      team_.publish(base_ + put_, signature());
      ++put_;
      moved = true;
    }
  }
  if (moved) comm().ring_mates();
  if (taken_ == steps_) return Advance::kDone;
  return moved ? Advance::kMoved : Advance::kBlocked;
}

void ShmExchange::blockers(std::vector<int>* out) const {
  for (int member = 0; member < members_; ++member) {
    if (member == me_ || taken_ >= steps_) continue;
    bool late = wants(member, taken_) && !team_.published(member, base_ + taken_);
    bool slow = put_ < steps_ && puts(put_) && !team_.may_overwrite(member, base_ + put_);
    if (late || slow) out->push_back(rank_of(member));
  }
}

}  // namespace hfreduce
