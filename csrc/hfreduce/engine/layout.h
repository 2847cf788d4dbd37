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
  // The rank of `node`, which is another than its own, that deals with `rank`.
  int host_of(int rank, int node) const {
    const std::vector<int>& ranks = nodes[node];
    return ranks[static_cast<std::size_t>(local_of[rank]) % ranks.size()];
  }
  // The rank that acts for `node` where `root` has the data: the root itself for its own.
  int envoy_of(int node, int root) const {
    return node_of[root] == node ? root : nodes[node].front();
  }
};

// `shares[i]` lists the ranks that rank i could share memory with. Two ranks are on one node if
// both say so of each other, and each with every rank that is there already.
Layout build_layout(const std::vector<std::vector<int>>& shares,
                    const std::vector<std::string>& zones_by_rank);

}  // namespace hfreduce
