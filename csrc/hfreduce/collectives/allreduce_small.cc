// SPDX-License-Identifier: Apache-2.0
//
// One step: publish the contribution, wait for the others', reduce all of them in order of rank.
// Cost: one line (or the message) written, one read from each mate; no lock, no system call.
#include <array>
#include <cstring>

#include "hfreduce/collectives/allreduce.h"
#include "hfreduce/engine/phase.h"

namespace hfreduce {
namespace {

class SmallReduce final : public Op {
 public:
  SmallReduce(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor,
              const ReduceArgs& args)
      : Op(std::move(comm), descriptor), args_(args), bytes_(args.count * args.size) {}

  void begin() override { step_ = comm().take_steps(1); }

  Advance advance() override {
    Team& team = *comm().team();
    if (!published_) {
      if (!team.may_publish(step_)) return Advance::kBlocked;
      enter_phase(Phase::kCopyIn);
      if (bytes_ > 0) std::memcpy(place_of(team.me()), args_.in, bytes_);
      team.publish(step_, signature());
      comm().ring_mates();
      published_ = true;
    }
    for (; seen_ < team.size(); ++seen_) {
      if (seen_ == team.me()) continue;
      if (!team.published(seen_, step_)) return Advance::kBlocked;
      if (team.signature(seen_, step_) != signature()) {
        comm().note_other_call(seen_, step_);
        return Advance::kBlocked;
      }
      team.note_first_step(seen_, step_);
    }
    enter_phase(Phase::kReduce);
    if (args_.out != nullptr && args_.count > 0) reduce(team);
    team.set_done(step_);
    comm().ring_mates();
    return Advance::kDone;
  }

  void blockers(std::vector<int>* out) const override {
    Team& team = *comm().team();
    for (int member = 0; member < team.size(); ++member) {
      if (member != team.me() && !team.published(member, step_)) {
        out->push_back(comm().mates()[member]);
      }
    }
  }

 private:
  std::byte* place_of(int member) const {
    Team& team = *comm().team();
    return bytes_ <= kInlineBytes ? team.head(member, step_).data : team.staging(member, step_);
  }

  void reduce(Team& team) {
    constexpr int kMost = 64;
    std::array<const void*, kMost> few;
    std::vector<const void*> many;
    const void** sources = few.data();
    if (team.size() > kMost) {
      many.resize(static_cast<std::size_t>(team.size()));
      sources = many.data();
    }
    for (int member = 0; member < team.size(); ++member) {
      sources[member] = member == team.me() ? static_cast<const void*>(args_.in) : place_of(member);
    }
    args_.kernels.native_to_native(args_.out, nullptr, sources, team.size(), args_.count,
                                   args_.scale);
  }

  const ReduceArgs args_;
  const std::size_t bytes_;
  std::uint64_t step_ = 0;
  bool published_ = false;
  int seen_ = 0;
};

}  // namespace

std::shared_ptr<Op> make_small_reduce(std::shared_ptr<CommunicatorImpl> comm,
                                      const OpDescriptor& descriptor, const ReduceArgs& args) {
  return std::make_shared<SmallReduce>(std::move(comm), descriptor, args);
}

}  // namespace hfreduce
