// SPDX-License-Identifier: Apache-2.0
//
// Operations between startCoalescing and endCoalescing are waited for as one. They start at once
// all the same: the engine runs them side by side, so nothing is gained by holding them back.
#include "bindings/torch/backend.h"

namespace hfreduce::adapter {

void Backend::startCoalescing() {
  const std::lock_guard lock(mutex_);
  coalesced_.clear();
  is_coalescing_ = true;
}

WorkPtr Backend::endCoalescing() {
  std::vector<c10::intrusive_ptr<Work>> works;
  {
    const std::lock_guard lock(mutex_);
    is_coalescing_ = false;
    works.swap(coalesced_);
  }
  if (works.empty()) return nullptr;
  if (works.size() == 1) return works.front();
  auto joined = new_work(c10d::OpType::COALESCED, Title::kCoalesced, true, {});
  joined->start_joined(std::move(works));
  return joined;
}

}  // namespace hfreduce::adapter
