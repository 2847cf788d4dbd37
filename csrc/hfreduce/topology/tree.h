// SPDX-License-Identifier: Apache-2.0
//
// Double binary tree over the nodes of a communicator (Sanders, Speck, Traeff: Two-tree algorithms
// for full bandwidth broadcast, reduction and scan, 2009). Each tree carries half of the data, up
// and down, and a node is interior in only one of them, so a node sends and receives at most two
// units for each unit reduced.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace hfreduce {

struct TreeNode {
  int parent = -1;                         // -1 at the root
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
// zones are not used). The same zones always give the same trees. Depth is counted in edges.
//
// Always: a tree has (number of zones - 1) edges whose ends lie in different zones, the least there
// can be; a node has at most four edges in the two trees together, hence at most two units.
// With up to three zones: no node is interior in both trees, and no tree is deeper than
// ceil(log2 n) + 1.
// With more zones both cannot always be had: where no node is interior twice, a zone of even size
// has at most one child zone in a tree, so that many such zones make a chain. Depth comes first
// then: one node in a zone of even size may be interior in both trees, with one child in each.
// With up to 12 zones no tree is deeper than ceil(log2 n) + 1. With more this cannot always be had
// either: the two ways out of a zone of several nodes lie one edge and two edges below its root, so
// that depth grows with 1.44 log2 (zones) instead of log2 (zones). 1,300 nodes may need 4 more.
DoubleTree build_double_tree(const std::vector<std::string>& zones);

}  // namespace hfreduce
