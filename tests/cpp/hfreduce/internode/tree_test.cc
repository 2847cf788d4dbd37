// SPDX-License-Identifier: Apache-2.0
//
// The tree at work: what every node sends and receives, in which order, with real data.
#include "hfreduce/topology/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "hfreduce/internode/wire_log.h"

namespace hfreduce {
namespace {

WorldShape tree_world(int nodes, int ranks_per_node = 1) {
  WorldShape shape = WorldShape::of(std::vector<int>(nodes, ranks_per_node));
  shape.options.algorithm = Algorithm::kTree;
  return shape;
}

// Small whole numbers: their sum is exact in any order.
constexpr std::size_t kPeriod = 127;
float value(int rank, std::size_t i) {
  return static_cast<float>((i * 31 + static_cast<std::size_t>(rank) * 17) % kPeriod);
}

void allreduce_and_check(Communicator& comm, std::size_t count) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = value(comm.rank(), i);
  ASSERT_OK(
      comm.allreduce(data.data(), data.data(), count, DType::kFloat32, {RedOp::kSum})->wait());
  std::array<float, kPeriod> expected{};
  for (std::size_t i = 0; i < kPeriod; ++i) {
    for (int rank = 0; rank < comm.size(); ++rank) expected[i] += value(rank, i);
  }
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], expected[i % kPeriod]) << i;
}

class TreeOfNodes : public testing::TestWithParam<int> {};

// Two units at most, each way; and a node's partials go to its parents in both trees, half the
// message to each.
TEST_P(TreeOfNodes, NoNodeCarriesMoreThanTwoUnits) {
  const int nodes = GetParam();
  constexpr std::size_t kCount = 1 << 18;
  constexpr std::uint64_t kUnit = kCount * sizeof(float);
  WorldShape shape = tree_world(nodes);
  WireLogs logs = make_logs(shape);
  run_world(shape, [&](Communicator& comm) {
    observe(comm, logs[comm.rank()].get());
    allreduce_and_check(comm, kCount);
  });
  if (HasFatalFailure()) return;

  const DoubleTree trees = build_double_tree(std::vector<std::string>(nodes));
  for (int node = 0; node < nodes; ++node) {
    SCOPED_TRACE("node " + std::to_string(node));
    const UpAndDown sent = bytes_of(*logs[node], true);
    const UpAndDown received = bytes_of(*logs[node], false);
    EXPECT_LE(sent.up + sent.down, 2 * kUnit);
    EXPECT_LE(received.up + received.down, 2 * kUnit);
    std::map<int, std::uint64_t> wanted, partials_to;
    for (const Tree& tree : trees) {
      if (tree.nodes[node].parent >= 0) wanted[tree.nodes[node].parent] += kUnit / 2;
    }
    for (const WireLog::Event& event : logs[node]->events()) {
      if (event.sent && event.up) partials_to[event.peer] += event.bytes;
    }
    EXPECT_EQ(partials_to, wanted);
  }
}

// The root of one tree stays away until every other node has sent it, or its parent, two chunks and
// more of that tree. No result can be under way before, so nobody waits for a chunk's result before
// the next chunk leaves.
TEST_P(TreeOfNodes, ChunksFollowEachOtherBeforeResultsCome) {
  const int nodes = GetParam();
  constexpr std::size_t kChunkBytes = 16384;  // travels unasked: the root has no place for it yet
  constexpr std::size_t kCount = 64 * kChunkBytes / sizeof(float);
  const DoubleTree trees = build_double_tree(std::vector<std::string>(nodes));
  for (int tree = 0; tree < 2; ++tree) {
    SCOPED_TRACE("tree " + std::to_string(tree));
    const int root = trees[tree].root;
    auto partials = [&](const std::vector<WireLog::Event>& events) {
      // Chunks of the two trees take turns.
      return std::count_if(events.begin(), events.end(), [&](const WireLog::Event& event) {
        return event.sent && event.up && event.chunk % 2 == static_cast<std::uint64_t>(tree);
      });
    };
    WorldShape shape = tree_world(nodes);
    shape.options.chunk_bytes = kChunkBytes;
    WireLogs logs = make_logs(shape);
    std::vector<long> before(nodes, 0);  // partials that left before the root took part
    run_world(shape, [&](Communicator& comm) {
      observe(comm, logs[comm.rank()].get());
      for (int node = 0; node < nodes && comm.rank() == root; ++node) {
        if (node == root) continue;
        ASSERT_TRUE(logs[node]->wait_until([&](const auto& events) {
          return partials(events) >= 3;
        })) << "node "
            << node << " sent no third chunk before it had the first one's result";
        before[node] = partials(logs[node]->events());
      }
      allreduce_and_check(comm, kCount);
    });
    if (HasFatalFailure()) return;
    for (int node = 0; node < nodes; ++node) {
      if (node == root) continue;
      long sent = 0;
      for (const WireLog::Event& event : logs[node]->events()) {
        const bool here = event.chunk % 2 == static_cast<std::uint64_t>(tree);
        if (event.sent && event.up && here) ++sent;
        if (!event.sent && !event.up && here) break;  // the first result
      }
      EXPECT_GE(sent, before[node]) << "node " << node;
      EXPECT_GE(sent, 3) << "node " << node;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, TreeOfNodes, testing::Range(2, 17));

TEST(Tree, SixtyFourRanksOnSixteenNodes) {
  run_world(tree_world(16, 4), [](Communicator& comm) {
    for (std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{500001}}) {
      allreduce_and_check(comm, count);
    }
  });
}

}  // namespace
}  // namespace hfreduce
