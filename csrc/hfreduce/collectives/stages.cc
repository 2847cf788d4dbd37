// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/collectives/stages.h"

namespace hfreduce {
namespace {

class Stages final : public Op {
 public:
  Stages(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor, StageOrder order,
         std::vector<std::shared_ptr<Op>> stages)
      : Op(std::move(comm), descriptor), order_(order), open_(std::move(stages)) {}

  void begin() override {
    if (order_ == StageOrder::kInTurn) {
      begin_stage(*open_.front());
    } else {
      for (const auto& stage : open_) begin_stage(*stage);
    }
  }

  Advance advance() override {
    bool moved = false;
    for (std::size_t i = 0; i < begun();) {
      Advance how = open_[i]->advance();
      moved |= how != Advance::kBlocked;
      if (how != Advance::kDone) {
        ++i;
        continue;
      }
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
      if (order_ == StageOrder::kInTurn && !open_.empty()) begin_stage(*open_.front());
    }
    if (open_.empty()) return Advance::kDone;
    return moved ? Advance::kMoved : Advance::kBlocked;
  }

  void cancel() override {
    for (std::size_t i = 0; i < begun(); ++i) open_[i]->cancel();
  }
  void blockers(std::vector<int>* out) const override {
    for (std::size_t i = 0; i < begun(); ++i) open_[i]->blockers(out);
  }

 private:
  std::size_t begun() const {
    return order_ == StageOrder::kInTurn ? std::min<std::size_t>(1, open_.size()) : open_.size();
  }
  void begin_stage(Op& stage) {
    stage.set_place(sequence(), signature(), deadline(), timeout());
    stage.begin();
  }

  const StageOrder order_;
  std::vector<std::shared_ptr<Op>> open_;  // not done yet
};

}  // namespace

std::shared_ptr<Op> make_stages(std::shared_ptr<CommunicatorImpl> comm,
                                const OpDescriptor& descriptor, StageOrder order,
                                std::vector<std::shared_ptr<Op>> stages) {
  if (stages.size() == 1) return std::move(stages.front());
  return std::make_shared<Stages>(std::move(comm), descriptor, order, std::move(stages));
}

}  // namespace hfreduce
