// SPDX-License-Identifier: Apache-2.0
//
// In which type sums travel between nodes: partial sums of 16-bit types in 32 bits, results in the
// tensor's type, and with native_wire all in 16 bits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hfreduce/internode/wire_log.h"

namespace hfreduce {
namespace {

struct Case {
  const char* name;
  Algorithm algorithm;
  std::vector<int> ranks_per_node;
  std::size_t partial_size;  // bytes of an element of a partial on the wire, without native_wire
};

class Wire : public testing::TestWithParam<Case> {};

constexpr std::size_t kCount = 300000;

UpAndDown bytes_sent(const Case& with, DType dtype, bool native_wire) {
  WorldShape shape = WorldShape::of(with.ranks_per_node);
  shape.options.algorithm = with.algorithm;
  shape.options.native_wire = native_wire;
  WireLogs logs = make_logs(shape);
  run_world(shape, [&](Communicator& comm) {
    observe(comm, logs[comm.rank()].get());
    const std::uint16_t one = dtype == DType::kBFloat16 ? 0x3f80 : 0x3c00;
    const std::uint16_t four = dtype == DType::kBFloat16 ? 0x4080 : 0x4400;
    std::vector<std::uint16_t> data(kCount, one);
    ASSERT_OK(comm.allreduce(data.data(), data.data(), kCount, dtype, {RedOp::kSum})->wait());
    ASSERT_EQ(comm.size(), 4);
    for (std::uint16_t element : data) ASSERT_EQ(element, four);
  });
  UpAndDown total;
  for (auto& log : logs) {
    const UpAndDown bytes = bytes_of(*log, true);
    total.up += bytes.up;
    total.down += bytes.down;
  }
  return total;
}

TEST_P(Wire, PartialsAreWideAndResultsAreNot) {
  // Direct and tree alike: every node but one sends its partial, and every node but one gets the
  // result.
  const std::uint64_t hops = kCount * (GetParam().ranks_per_node.size() - 1);
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    const UpAndDown exact = bytes_sent(GetParam(), dtype, false);
    EXPECT_EQ(exact.up, hops * GetParam().partial_size);
    EXPECT_EQ(exact.down, hops * 2);
    const UpAndDown native = bytes_sent(GetParam(), dtype, true);
    EXPECT_EQ(native.up, hops * 2);
    EXPECT_EQ(native.down, hops * 2);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Wire,
    testing::Values(Case{"tree_2_2", Algorithm::kTree, {2, 2}, 4},
                    Case{"tree_1_1_1_1", Algorithm::kTree, {1, 1, 1, 1}, 4},
                    Case{"direct_2_2", Algorithm::kDirect, {2, 2}, 4},
                    // A single rank's partial is its input, exact as it is.
                    Case{"direct_1_1_1_1", Algorithm::kDirect, {1, 1, 1, 1}, 2}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hfreduce
