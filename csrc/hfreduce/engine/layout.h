// SPDX-License-Identifier: Apache-2.0
//
// Layout: which ranks share a node. Computed from facts that all ranks have, so all agree.
#pragma once

#include <string>
#include <vector>

namespace hfreduce {

struct Layout {
  std::vector<std::vector<int>> nodes;  // ranks of each node, ascending; nodes by lowest rank
  std::vector<int> node_of;             // by rank
  std::vector<int> local_of;            // index within the node, by rank
  std::vector<std::string> zones;       // by node

  int node_count() const { return static_cast<int>(nodes.size()); }
};

// `shares[i]` lists the ranks that rank i could share memory with. Two ranks are on one node if
// both say so of each other, and each with every rank that is there already.
Layout build_layout(const std::vector<std::vector<int>>& shares,
                    const std::vector<std::string>& zones_by_rank);

}  // namespace hfreduce
