// SPDX-License-Identifier: Apache-2.0
//
// Groups made from a group. Each meets anew through the store: the members of the new group alone
// take part, and nothing of the old one is needed, so it works after the loss of a rank too.
#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"

namespace hfreduce::adapter {
namespace {

// torch's SHRINK_ABORT: end operations in flight first.
constexpr int kShrinkAbort = 1;

}  // namespace

c10::intrusive_ptr<Backend> Backend::child(c10::intrusive_ptr<c10d::Store> store, int rank,
                                           const std::vector<int>& ranks,
                                           const BaseOptions& options) {
  auto own = to_own(options);
  own->global_ranks_in_group.clear();
  for (const int member : ranks) {
    own->global_ranks_in_group.push_back(
        static_cast<std::uint64_t>(global_ranks_[static_cast<std::size_t>(member)]));
  }
  return c10::make_intrusive<Backend>(std::move(store), rank, static_cast<int>(ranks.size()), own,
                                      name_);
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const BaseOptions& options) {
  group_->check_usable();
  for (const int rank : ranks) check_root(rank, 0, size_, "split");
  const auto position = std::find(ranks.begin(), ranks.end(), rank_);
  if (position == ranks.end()) return nullptr;
  return child(store, static_cast<int>(position - ranks.begin()), ranks, options);
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const BaseOptions& options, const int& rank,
                                                 const int& size) {
  group_->check_usable();
  auto own = to_own(options);
  // The ranks come from several groups whose numbering is not known here.
  own->global_ranks_in_group.clear();
  return c10::make_intrusive<Backend>(store, rank, size, own, name_);
}

c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<std::int64_t>& ranks_to_exclude,
                                                  int flags, const BaseOptions& options) {
  group_->check_usable();
  std::vector<int> ranks;
  std::string place = "shrunk";
  for (int rank = 0; rank < size_; ++rank) {
    if (std::find(ranks_to_exclude.begin(), ranks_to_exclude.end(), rank) !=
        ranks_to_exclude.end()) {
      place += "-" + std::to_string(rank);
    } else {
      ranks.push_back(rank);
    }
  }
  const auto position = std::find(ranks.begin(), ranks.end(), rank_);
  if (position == ranks.end()) {
    throw_invalid("shrink", "rank ", rank_, " is among those to exclude; only the others call it");
  }
  if ((flags & kShrinkAbort) != 0) abort();
  auto store = c10::make_intrusive<c10d::PrefixStore>(place + "/", store_);
  return child(std::move(store), static_cast<int>(position - ranks.begin()), ranks,
               options ? options : options_->copy());
}

}  // namespace hfreduce::adapter
