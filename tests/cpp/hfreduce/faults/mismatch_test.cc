// SPDX-License-Identifier: Apache-2.0
//
// Ranks that call different things: every rank hears of it, with a table of what each called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "hfreduce/world.h"

namespace hfreduce {
namespace {

using testing::HasSubstr;

struct Case {
  const char* name;
  std::vector<int> ranks_per_node;
};

class Mismatch : public testing::TestWithParam<Case> {
 protected:
  // Rank 1 runs `odd`, the others `usual`; then all do two barriers. By then each must have failed.
  void expect_mismatch(const std::function<RequestPtr(Communicator&)>& usual,
                       const std::function<RequestPtr(Communicator&)>& odd,
                       const std::vector<std::string>& table) {
    WorldShape shape = WorldShape::of(GetParam().ranks_per_node);
    MeetingPoint all(shape.size());
    run_world(shape, [&](Communicator& comm) {
      EXPECT_TRUE(comm.barrier()->wait().ok());
      all.wait();  // else a slow rank may hear of the failure in its first barrier
      std::vector<RequestPtr> requests;
      requests.push_back(comm.rank() == 1 ? odd(comm) : usual(comm));
      requests.push_back(comm.barrier());
      requests.push_back(comm.barrier());
      for (auto& request : requests) static_cast<void>(request->wait());
      ff::Status last = requests.back()->status();
      ASSERT_EQ(last.code(), ff::Code::kMismatch) << last.to_string();
      for (const auto& line : table) EXPECT_THAT(last.message(), HasSubstr(line));
      ff::Status later = comm.barrier()->wait();
      EXPECT_EQ(later.code(), ff::Code::kMismatch);
      EXPECT_EQ(comm.health().message(), later.message());
    });
  }

  std::vector<float> a_ = std::vector<float>(100000);
  std::vector<std::vector<float>> buffers_ = std::vector<std::vector<float>>(8, a_);
  float* data(Communicator& comm) { return buffers_[comm.rank()].data(); }
};

TEST_P(Mismatch, Operation) {
  expect_mismatch(
      [&](Communicator& c) {
        return c.allreduce(data(c), data(c), 10, DType::kFloat32, {RedOp::kSum});
      },
      [&](Communicator& c) { return c.broadcast(data(c), 10, DType::kFloat32, 1); },
      {"as #2", "allreduce(float32 sum, 10 elements)", "broadcast(float32, 10 elements, root 1)"});
}

TEST_P(Mismatch, Type) {
  expect_mismatch(
      [&](Communicator& c) {
        return c.allreduce(data(c), data(c), 50000, DType::kFloat32, {RedOp::kSum});
      },
      [&](Communicator& c) {
        return c.allreduce(data(c), data(c), 50000, DType::kFloat64, {RedOp::kSum});
      },
      {"float32", "float64"});
}

TEST_P(Mismatch, Size) {
  expect_mismatch(
      [&](Communicator& c) {
        return c.allreduce(data(c), data(c), 100000, DType::kFloat32, {RedOp::kSum});
      },
      [&](Communicator& c) {
        return c.allreduce(data(c), data(c), 99999, DType::kFloat32, {RedOp::kSum});
      },
      {"100000 elements", "99999 elements"});
}

TEST_P(Mismatch, ReduceOperation) {
  expect_mismatch(
      [&](Communicator& c) {
        return c.allreduce(data(c), data(c), 3, DType::kFloat32, {RedOp::kSum});
      },
      [&](Communicator& c) {
        return c.allreduce(data(c), data(c), 3, DType::kFloat32, {RedOp::kMax});
      },
      {"float32 sum", "float32 max"});
}

// Both roots only send, so the operation itself goes through; the next call must tell.
TEST_P(Mismatch, Root) {
  expect_mismatch([&](Communicator& c) { return c.broadcast(data(c), 5, DType::kFloat32, 0); },
                  [&](Communicator& c) { return c.broadcast(data(c), 5, DType::kFloat32, 1); },
                  {"root 0", "root 1"});
}

TEST_P(Mismatch, MessageSize) {
  run_world(WorldShape::of(GetParam().ranks_per_node), [&](Communicator& comm) {
    for (std::size_t bytes : {std::size_t{16}, std::size_t{300000}}) {
      RequestPtr request;
      if (comm.rank() == 0) request = comm.send({data(comm), bytes}, 1, 3);
      if (comm.rank() == 1) request = comm.recv({data(comm), bytes + 4}, 0, 3);
      RequestPtr barrier = comm.barrier();
      if (request) static_cast<void>(request->wait());
      static_cast<void>(barrier->wait());
      ff::Status later = comm.barrier()->wait();
      static_cast<void>(later);
      ff::Status last = comm.barrier()->wait();
      ASSERT_EQ(last.code(), ff::Code::kMismatch) << last.to_string();
      break;
    }
  });
}

TEST_P(Mismatch, BlockSizeOfAlltoall) {
  run_world(WorldShape::of(GetParam().ranks_per_node), [&](Communicator& comm) {
    std::vector<ConstBytes> in;
    std::vector<Bytes> out;
    std::vector<float> target(100000);
    for (int r = 0; r < comm.size(); ++r) {
      // Rank 1 sends less than all others expect of it.
      std::size_t sent = comm.rank() == 1 && r != 1 ? 8 : 40;
      in.push_back({data(comm), sent});
      out.push_back({target.data() + 100 * r, 40});
    }
    static_cast<void>(comm.alltoall(in, out, DType::kFloat32)->wait());
    static_cast<void>(comm.barrier()->wait());
    ff::Status last = comm.barrier()->wait();
    ASSERT_EQ(last.code(), ff::Code::kMismatch) << last.to_string();
    EXPECT_THAT(last.message(), HasSubstr("rank"));
    EXPECT_THAT(last.message(), HasSubstr("40"));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Mismatch,
                         testing::Values(Case{"one_node", {3}}, Case{"nodes_1_1", {1, 1}},
                                         Case{"nodes_2_1", {2, 1}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hfreduce
