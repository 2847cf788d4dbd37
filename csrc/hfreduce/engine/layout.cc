// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/layout.h"

#include <algorithm>

namespace hfreduce {

Layout build_layout(const std::vector<std::vector<int>>& shares,
                    const std::vector<std::string>& zones_by_rank) {
  Layout layout;
  const int size = static_cast<int>(shares.size());
  auto says = [&](int a, int b) {
    return std::find(shares[a].begin(), shares[a].end(), b) != shares[a].end();
  };
  layout.node_of.resize(size);
  layout.local_of.resize(size);
  for (int rank = 0; rank < size; ++rank) {
    auto home = std::find_if(layout.nodes.begin(), layout.nodes.end(), [&](const auto& node) {
      return std::all_of(node.begin(), node.end(),
                         [&](int mate) { return says(rank, mate) && says(mate, rank); });
    });
    if (home == layout.nodes.end()) {
      layout.nodes.emplace_back();
      layout.zones.push_back(zones_by_rank[rank]);
      home = layout.nodes.end() - 1;
    }
    layout.node_of[rank] = static_cast<int>(home - layout.nodes.begin());
    layout.local_of[rank] = static_cast<int>(home->size());
    home->push_back(rank);
  }
  return layout;
}

}  // namespace hfreduce
