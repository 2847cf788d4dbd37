// SPDX-License-Identifier: Apache-2.0
//
// Double binary tree over the nodes of a communicator (Sanders, Speck, Traeff: Two-tree algorithms
// for full bandwidth broadcast, reduction and scan, 2009). Each node is interior in at most one of
// the two trees, so a node sends and receives at most two units for each unit reduced.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace hfreduce {

struct TreeNode {
  int parent = -1;                       // -1 at the root
  std::array<int, 2> children = {-1, -1};  // -1: none
  bool interior() const { return children[0] >= 0 || children[1] >= 0; }
};

// nodes[i] is node i's place.
struct Tree {
  int root = 0;
  std::vector<TreeNode> nodes;
};

using DoubleTree = std::array<Tree, 2>;

// The two trees over zones.size() >= 1 nodes; zones[i] names node i's network zone (all equal where
// zones are not used). Depth at most ceil(log2 n) + 1; each tree has at most (number of zones - 1)
// edges whose ends lie in different zones.
DoubleTree build_double_tree(const std::vector<std::string>& zones);

}  // namespace hfreduce
