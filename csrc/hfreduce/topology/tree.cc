// SPDX-License-Identifier: Apache-2.0
//
// How the two trees are found. In a tree every zone is one connected piece, so that the pieces
// form a tree of zones with (zones - 1) edges. A piece of s nodes with c child zones has k interior
// nodes with s - 1 + c children, so k >= (s - 1 + c) / 2; over both trees the k of a zone add up to
// s when no node is interior twice. That leaves two child zones to a zone, in both trees together:
//   odd s    both in one tree, where the zone branches; in the other it is a leaf
//   even s   one in each: the zone passes on
// Zones that only pass on form a chain, and a chain is deep. So there are two plans. The first
// follows the table. The second, for when the first is too deep, lets even zones branch as odd ones
// do, at the price of one node a zone that is interior in both trees, with one child in each: still
// two units.
#include "hfreduce/topology/tree.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

namespace hfreduce {
namespace {

struct Zone {
  std::vector<int> members;          // node numbers, ascending
  std::array<int, 2> capacity = {};  // most child zones in each tree
};

// Where a zone hangs in one tree.
struct Place {
  std::vector<int> children;  // zone numbers, tallest first
  int height = 0;             // edges from the zone's root to its deepest descendant
};

struct TreePlan {
  std::vector<Place> places;  // by zone
  int root_zone = -1;
};
using Plan = std::array<TreePlan, 2>;

// No branching plan comes near this height.
constexpr int kMaxHeight = 60;

int floor_log2(std::uint64_t n) { return std::bit_width(n) - 1; }
int ceil_log2(std::uint64_t n) { return n <= 1 ? 0 : std::bit_width(n - 1); }

// Interior nodes of a piece of `size` nodes with `children` child zones.
int interior_count(int size, int children) { return (size + children) / 2; }

// In a binary tree whose interior nodes all have two children, leaves of heights h can hang within
// height H just if the 2^h add up to at most 2^H. A piece with k interior nodes has k + 1 leaves:
// its own and, where a node has one child only, one that is missing (this many units), and the
// child zones.
std::uint64_t unit_count(int size, int children) {
  return interior_count(size, children) + 1 - children;
}

// Zones in descending order of size, those of equal size by their first member.
std::vector<Zone> group(const std::vector<std::string>& names) {
  std::map<std::string_view, int> index;
  std::vector<Zone> zones;
  for (int node = 0; node < static_cast<int>(names.size()); ++node) {
    const auto [it, added] = index.try_emplace(names[node], static_cast<int>(zones.size()));
    if (added) zones.emplace_back();
    zones[it->second].members.push_back(node);
  }
  std::stable_sort(zones.begin(), zones.end(), [](const Zone& a, const Zone& b) {
    return a.members.size() > b.members.size();
  });
  return zones;
}

// Zones that branch do so in the first tree and in the second by turns, so that each tree has
// as many branching zones as leaves, give or take one.
void set_capacities(bool branch_even, std::vector<Zone>* zones) {
  int turn = 0;
  for (Zone& zone : *zones) {
    if (zone.members.size() % 2 == 0 && !branch_even) {
      zone.capacity = {1, 1};
    } else {
      zone.capacity = {turn == 0 ? 2 : 0, turn == 0 ? 0 : 2};
      turn = 1 - turn;
    }
  }
}

// Hangs zones below one another within a given height: a zone that has room for child zones goes
// where the most height is left, a zone that has none where it just fits.
class Planner {
 public:
  Planner(const std::vector<Zone>& zones, int tree) : zones_(zones), tree_(tree) {}

  // False when this finds no way.
  bool plan(int height, const std::vector<int>& order, TreePlan* plan) {
    open_ = {{height, -1}};
    plan->places.assign(zones_.size(), {});
    plan->root_zone = order.front();
    std::vector<int> placed;
    std::vector<int> waiting;  // leaves that would have closed the only place
    for (const int z : order) {
      if (capacity(z) == 0 && open_.size() == 1 && zones_.size() > 1) {
        waiting.push_back(z);
        continue;
      }
      if (!place(z, plan)) return false;
      placed.push_back(z);
    }
    for (const int z : waiting) {
      if (!place(z, plan)) return false;
      placed.push_back(z);
    }
    plan->root_zone = placed.front();
    for (auto it = placed.rbegin(); it != placed.rend(); ++it) settle(*it, plan);
    return true;
  }

 private:
  int size(int z) const { return static_cast<int>(zones_[z].members.size()); }
  int capacity(int z) const { return zones_[z].capacity[tree_]; }

  bool place(int z, TreePlan* plan) {
    const int own_height = ceil_log2(unit_count(size(z), 0));
    const auto fit = open_.lower_bound({own_height, -1});
    if (fit == open_.end()) return false;
    const auto it = capacity(z) == 0 ? fit : std::prev(open_.end());
    const auto [height, parent] = *it;
    open_.erase(it);
    if (parent >= 0) plan->places[parent].children.push_back(z);
    for (int children = capacity(z); children > 0; --children) {
      if (open_below(z, height, children)) break;
    }
    return true;
  }

  // Opens `children` places below zone z, which hangs where `height` is left.
  bool open_below(int z, int height, int children) {
    std::uint64_t room = std::uint64_t{1} << height;
    const std::uint64_t units = unit_count(size(z), children);
    std::array<int, 2> heights = {};
    if (room < units + children) return false;
    room -= units;
    for (int i = 0; i < children; ++i) {
      heights[i] = std::min(height - 1, floor_log2(room - (children - 1 - i)));
      room -= std::uint64_t{1} << heights[i];
    }
    for (int i = 0; i < children; ++i) open_.emplace(heights[i], z);
    return true;
  }

  // The height that zone z comes to, its children being settled.
  void settle(int z, TreePlan* plan) const {
    std::vector<int>& children = plan->places[z].children;
    std::stable_sort(children.begin(), children.end(),
                     [&](int a, int b) { return plan->places[a].height > plan->places[b].height; });
    std::uint64_t weight = unit_count(size(z), static_cast<int>(children.size()));
    for (const int child : children) weight += std::uint64_t{1} << plan->places[child].height;
    plan->places[z].height = ceil_log2(weight);
  }

  const std::vector<Zone>& zones_;
  const int tree_;
  std::multiset<std::pair<int, int>> open_;  // (height left, parent zone)
};

// The lowest tree found that is at most `limit` high. Three orders are tried: the tallest zones
// first; those that branch before those that do not; and among these the smallest first, which
// keeps small zones from hanging below every large one.
bool plan_tree(const std::vector<Zone>& zones, int tree, int limit, TreePlan* plan) {
  std::vector<int> by_size(zones.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  const auto branching_first = [&](std::vector<int> order) {
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return zones[a].capacity[tree] > zones[b].capacity[tree];
    });
    return order;
  };
  const std::array<std::vector<int>, 3> orders = {
      by_size, branching_first(by_size),
      branching_first(std::vector<int>(by_size.rbegin(), by_size.rend()))};
  Planner planner(zones, tree);
  for (int height = 0; height <= limit; ++height) {
    for (const std::vector<int>& order : orders) {
      if (planner.plan(height, order, plan)) return true;
    }
  }
  return false;
}

bool make_plan(bool branch_even, int limit, std::vector<Zone>* zones, Plan* plan) {
  set_capacities(branch_even, zones);
  return plan_tree(*zones, 0, limit, &(*plan)[0]) && plan_tree(*zones, 1, limit, &(*plan)[1]);
}

// Which members are interior in which tree. Members alternate, so that the in-order walk of
// Builder joins neighbours. `single` is the first: it has one child where one node has to.
std::vector<int> interior_members(const Zone& zone, int tree, int count) {
  const int size = static_cast<int>(zone.members.size());
  std::vector<int> own;
  for (int i = 1 - tree; i < size; i += 2) own.push_back(zone.members[i]);
  // The first tree lacks one when the zone branches there: it takes the second's first, which the
  // second tree either leaves out (odd size) or gives one child (even size). The second tree lacks
  // one only in a zone of even size.
  if (static_cast<int>(own.size()) < count) own.insert(own.begin(), zone.members[tree]);
  own.erase(own.begin(), own.end() - count);
  return own;
}

class Builder {
 public:
  Builder(const std::vector<Zone>& zones, const Plan& plan, int tree, int node_count)
      : zones_(zones), places_(plan[tree].places), index_(tree) {
    tree_.nodes.resize(node_count);
    tree_.root = build_zone(plan[tree].root_zone);
  }
  Tree take() { return std::move(tree_); }

 private:
  // What hangs below one place of a piece: roots of child zones (tallest first, at most two), own
  // leaves, and possibly the missing leaf.
  struct Below {
    std::vector<int> exits;
    std::vector<int> heights;
    int leaves = 0;
    bool missing = false;
    std::uint64_t units() const { return leaves + (missing ? 1 : 0); }
    std::uint64_t items() const { return exits.size() + units(); }
  };
  struct Piece {
    std::vector<int> interior, leaves;
    std::size_t next_interior = 0, next_leaf = 0;
    int single = -1;  // the node with one child, or -1
  };

  int build_zone(int z) {
    const Zone& zone = zones_[z];
    const int size = static_cast<int>(zone.members.size());
    Below below;
    for (const int child : places_[z].children) {
      below.exits.push_back(build_zone(child));
      below.heights.push_back(places_[child].height);
    }
    const int k = interior_count(size, static_cast<int>(below.exits.size()));
    below.leaves = size - k;
    below.missing = below.items() < static_cast<std::uint64_t>(k) + 1;
    Piece piece;
    piece.interior = interior_members(zone, index_, k);
    std::set<int> is_interior(piece.interior.begin(), piece.interior.end());
    for (const int node : zone.members) {
      if (!is_interior.contains(node)) piece.leaves.push_back(node);
    }
    if (below.missing) {
      piece.single = piece.interior.front();
      piece.interior.erase(piece.interior.begin());
    }
    std::sort(piece.interior.begin(), piece.interior.end());
    return build(below, &piece);
  }

  // In order: left part, node, right part. Returns the root of the part, -1 for the missing leaf.
  int build(const Below& below, Piece* piece) {
    if (below.items() == 1) {
      if (!below.exits.empty()) return below.exits[0];
      return below.missing ? -1 : piece->leaves[piece->next_leaf++];
    }
    const auto [left, right] = split(below);
    const int left_root = build(left, piece);
    const bool single =
        (left.missing && left.items() == 1) || (right.missing && right.items() == 1);
    const int node = single ? piece->single : piece->interior[piece->next_interior++];
    const int right_root = build(right, piece);
    int slot = 0;
    for (const int child : {left_root, right_root}) {
      if (child < 0) continue;
      tree_.nodes[node].children[slot++] = child;
      tree_.nodes[child].parent = node;
    }
    return node;
  }

  // Two parts with weights (sums of 2^height) as even as they can be.
  static std::pair<Below, Below> split(const Below& below) {
    Below left, right;
    std::array<std::uint64_t, 2> weight = {0, 0};
    for (std::size_t i = 0; i < below.exits.size(); ++i) {
      Below& side = i == 0 ? left : right;
      side.exits.push_back(below.exits[i]);
      side.heights.push_back(below.heights[i]);
      weight[i] = std::uint64_t{1} << below.heights[i];
    }
    const std::uint64_t units = below.units();
    const std::uint64_t to_left =
        weight[0] >= weight[1] + units ? 0 : (units + weight[1] - weight[0]) / 2;
    right.missing = below.missing && to_left < units;
    left.missing = below.missing && !right.missing;
    left.leaves = static_cast<int>(to_left) - (left.missing ? 1 : 0);
    right.leaves = below.leaves - left.leaves;
    return {left, right};
  }

  const std::vector<Zone>& zones_;
  const std::vector<Place>& places_;
  const int index_;
  Tree tree_;
};

}  // namespace

DoubleTree build_double_tree(const std::vector<std::string>& zone_names) {
  std::vector<Zone> zones = group(zone_names);
  const int node_count = static_cast<int>(zone_names.size());
  Plan plan;
  if (!make_plan(false, ceil_log2(zone_names.size()) + 1, &zones, &plan)) {
    const bool found = make_plan(true, kMaxHeight, &zones, &plan);
    assert(found);
    static_cast<void>(found);
  }
  return {Builder(zones, plan, 0, node_count).take(), Builder(zones, plan, 1, node_count).take()};
}

}  // namespace hfreduce
