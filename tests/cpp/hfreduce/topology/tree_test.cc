// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/topology/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hfreduce {
namespace {

using Zones = std::vector<std::string>;

int ceil_log2(int n) {
  int log = 0;
  while ((1 << log) < n) ++log;
  return log;
}

// What is measured of a double tree.
struct Facts {
  int depth = 0;              // of the deeper tree, in edges
  int crossings = 0;          // of the tree with more
  int max_units = 0;          // sent or received by one node, each tree carrying half
  int interior_twice = 0;     // nodes
  bool twice_is_mild = true;  // such nodes: in zones of even size, one a zone, one child a tree
};

// Walks both trees from their roots; fails unless each holds every node just once with links that
// agree in both directions.
Facts measure(const Zones& zones) {
  const DoubleTree trees = build_double_tree(zones);
  const int n = static_cast<int>(zones.size());
  Facts facts;
  std::vector<int> half_units_sent(n), half_units_received(n), interior(n), children(n);
  for (const Tree& tree : trees) {
    EXPECT_EQ(static_cast<int>(tree.nodes.size()), n);
    EXPECT_EQ(tree.nodes[tree.root].parent, -1);
    std::vector<bool> seen(n);
    int reached = 0;
    int crossings = 0;
    std::vector<std::pair<int, int>> stack = {{tree.root, 0}};
    while (!stack.empty()) {
      const auto [node, depth] = stack.back();
      stack.pop_back();
      EXPECT_FALSE(seen[node]) << "node " << node << " hangs in two places";
      if (seen[node]) continue;
      seen[node] = true;
      ++reached;
      facts.depth = std::max(facts.depth, depth);
      interior[node] += tree.nodes[node].interior() ? 1 : 0;
      for (const int child : tree.nodes[node].children) {
        if (child < 0) continue;
        EXPECT_EQ(tree.nodes[child].parent, node);
        ++children[node];
        crossings += zones[child] != zones[node] ? 1 : 0;
        // Up: the child sends its half. Down: the parent sends the result's half.
        ++half_units_sent[child];
        ++half_units_received[node];
        ++half_units_sent[node];
        ++half_units_received[child];
        stack.emplace_back(child, depth + 1);
      }
    }
    EXPECT_EQ(reached, n);
    facts.crossings = std::max(facts.crossings, crossings);
  }
  std::set<std::string> zones_with_twice;
  for (int i = 0; i < n; ++i) {
    const int most = std::max(half_units_sent[i], half_units_received[i]);
    facts.max_units = std::max(facts.max_units, (most + 1) / 2);
    if (interior[i] < 2) continue;
    ++facts.interior_twice;
    const bool even = std::count(zones.begin(), zones.end(), zones[i]) % 2 == 0;
    const bool first = zones_with_twice.insert(zones[i]).second;
    facts.twice_is_mild = facts.twice_is_mild && even && first && children[i] == 2;
  }
  return facts;
}

int zone_count(const Zones& zones) {
  return static_cast<int>(std::set<std::string>(zones.begin(), zones.end()).size());
}

// All that tree.h promises for these zones.
void expect_promises(const Zones& zones) {
  const Facts facts = measure(zones);
  const int count = zone_count(zones);
  const int bound = ceil_log2(static_cast<int>(zones.size())) + 1;
  EXPECT_EQ(facts.crossings, count - 1);
  EXPECT_LE(facts.max_units, 2);
  EXPECT_TRUE(facts.twice_is_mild);
  if (count <= 3) {
    EXPECT_EQ(facts.interior_twice, 0);
  }
  EXPECT_LE(facts.depth, count <= 12 ? bound : bound + 4);
}

Zones blocks(const std::vector<int>& sizes) {
  Zones zones;
  for (std::size_t z = 0; z < sizes.size(); ++z)
    zones.insert(zones.end(), sizes[z], std::to_string(z));
  return zones;
}

TEST(Tree, OneZone) {
  for (int n = 1; n <= 1300; ++n) {
    SCOPED_TRACE(n);
    const Facts facts = measure(Zones(n, "z"));
    EXPECT_EQ(facts.interior_twice, 0);
    EXPECT_LE(facts.max_units, 2);
    EXPECT_EQ(facts.crossings, 0);
    // Lower than promised: in-order trees of n nodes are as flat as binary trees can be.
    EXPECT_LE(facts.depth, ceil_log2(n + 1) - 1);
    if (HasFailure()) return;
  }
}

TEST(Tree, EachNodeItsOwnZone) {
  for (int n = 1; n <= 1300; n += 1 + n / 20) {
    SCOPED_TRACE(n);
    Zones zones;
    for (int i = 0; i < n; ++i) zones.push_back(std::to_string(i));
    const Facts facts = measure(zones);
    EXPECT_EQ(facts.interior_twice, 0);
    EXPECT_LE(facts.max_units, 2);
    EXPECT_LE(facts.depth, ceil_log2(n) + 1);
    if (HasFailure()) return;
  }
}

// Any assignment: nodes of a zone lie anywhere, sizes are even, uneven or skewed.
TEST(Tree, RandomZones) {
  std::mt19937 random(20240607);
  for (int n = 1; n <= 1300; ++n) {
    for (const int most : {2, 3, 12, n}) {
      const int count = 1 + static_cast<int>(random() % std::min(most, n));
      const bool skewed = random() % 2 == 0;
      Zones zones;
      for (int i = 0; i < n; ++i) {
        std::uint32_t z = random() % count;
        if (skewed) z = std::min<std::uint32_t>(z, random() % count);
        zones.push_back("zone-" + std::to_string(z));
      }
      SCOPED_TRACE("n=" + std::to_string(n) + " zones=" + std::to_string(zone_count(zones)));
      expect_promises(zones);
      if (HasFailure()) return;
    }
  }
}

TEST(Tree, TwoZonesOfAnySize) {
  for (int a = 1; a <= 70; ++a) {
    for (int b = a; b <= 70; ++b) {
      SCOPED_TRACE(std::to_string(a) + "+" + std::to_string(b));
      expect_promises(blocks({a, b}));
      if (HasFailure()) return;
    }
  }
}

TEST(Tree, ThreeZonesOfAnySize) {
  for (int a = 1; a <= 20; ++a) {
    for (int b = a; b <= 20; ++b) {
      for (int c = b; c <= 20; ++c) {
        SCOPED_TRACE(std::to_string(a) + "+" + std::to_string(b) + "+" + std::to_string(c));
        expect_promises(blocks({a, b, c}));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Tree, ManyZonesOfOneSize) {
  for (int count = 1; count <= 650; count += 1 + count / 8) {
    for (const int size : {1, 2, 3, 4, 5, 8, 16}) {
      if (count * size > 1300) continue;
      SCOPED_TRACE(std::to_string(count) + " zones of " + std::to_string(size));
      expect_promises(blocks(std::vector<int>(count, size)));
      if (HasFailure()) return;
    }
  }
}

// Even zones that only pass on would be a chain of 64: with zones that branch they are not.
TEST(Tree, ManyEvenZonesAreNotAChain) {
  const Facts facts = measure(blocks(std::vector<int>(64, 2)));
  EXPECT_GT(facts.interior_twice, 0);
  EXPECT_LE(facts.depth, ceil_log2(128) + 3);
}

TEST(Tree, TwelveZonesOfUnlikeSizes) {
  std::mt19937 random(7);
  for (int round = 0; round < 1500; ++round) {
    std::vector<int> sizes;
    const int count = 4 + static_cast<int>(random() % 9);
    for (int z = 0; z < count; ++z) {
      switch (round % 4) {
        case 0:
          sizes.push_back(1 << (random() % 7));
          break;
        case 1:
          sizes.push_back(z == 0 ? 1 + random() % 500 : 2 * (1 + random() % 3));
          break;
        case 2:
          sizes.push_back(2 * (1 + random() % 50));
          break;
        default:
          sizes.push_back(1 + random() % 100);
          break;
      }
    }
    SCOPED_TRACE(testing::PrintToString(sizes));
    expect_promises(blocks(sizes));
    if (HasFailure()) return;
  }
}

TEST(Tree, SameZonesSameTrees) {
  Zones zones;
  for (int i = 0; i < 300; ++i) zones.push_back(std::to_string((i * 7) % 5));
  const DoubleTree first = build_double_tree(zones);
  const DoubleTree second = build_double_tree(zones);
  for (int t = 0; t < 2; ++t) {
    EXPECT_EQ(first[t].root, second[t].root);
    for (int i = 0; i < 300; ++i) {
      EXPECT_EQ(first[t].nodes[i].parent, second[t].nodes[i].parent);
      EXPECT_EQ(first[t].nodes[i].children, second[t].nodes[i].children);
    }
  }
}

// The trees follow from which nodes share a zone, not from what zones are called.
TEST(Tree, ZoneNamesDoNotMatter) {
  Zones zones, renamed;
  for (int i = 0; i < 90; ++i) {
    zones.push_back(std::string(1, static_cast<char>('a' + i % 7)));
    renamed.push_back("rack-" + std::to_string(100 - i % 7));
  }
  const DoubleTree first = build_double_tree(zones);
  const DoubleTree second = build_double_tree(renamed);
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < 90; ++i) EXPECT_EQ(first[t].nodes[i].parent, second[t].nodes[i].parent);
  }
}

// Both trees drawn for seven nodes in one zone: in order, and the same one place on.
TEST(Tree, SevenNodes) {
  const DoubleTree trees = build_double_tree(Zones(7, ""));
  EXPECT_EQ(trees[0].root, 3);
  EXPECT_EQ(trees[0].nodes[3].children, (std::array<int, 2>{1, 5}));
  EXPECT_EQ(trees[0].nodes[1].children, (std::array<int, 2>{0, 2}));
  EXPECT_EQ(trees[0].nodes[5].children, (std::array<int, 2>{4, 6}));
  for (const int leaf : {0, 2, 4, 6}) EXPECT_FALSE(trees[0].nodes[leaf].interior());
  for (const int leaf : {0, 1, 3, 5}) EXPECT_FALSE(trees[1].nodes[leaf].interior());
}

}  // namespace
}  // namespace hfreduce
