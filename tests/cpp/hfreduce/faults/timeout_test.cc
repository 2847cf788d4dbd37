// SPDX-License-Identifier: Apache-2.0
//
// Ranks that stay away: the error names who is missing and what is known of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "hfreduce/world.h"

namespace hfreduce {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class Timeouts : public testing::TestWithParam<std::vector<int>> {};

TEST_P(Timeouts, NamesWhoHasNotEntered) {
  std::atomic<bool> over{false};
  std::atomic<int> left{0};
  run_world(WorldShape::of(GetParam()), [&](Communicator& comm) {
    ASSERT_OK(comm.barrier()->wait());
    float data = 1;
    if (comm.rank() == 1) {
      while (!over) std::this_thread::sleep_for(milliseconds(10));
    } else {
      OpOptions options;
      options.timeout = milliseconds(700);
      ff::Status status =
          comm.allreduce(&data, &data, 1, DType::kFloat32, {RedOp::kSum}, options)->wait();
      EXPECT_EQ(status.code(), ff::Code::kTimeout) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("gave up"));
      EXPECT_THAT(status.message(), HasSubstr("rank 1 (host"));
      EXPECT_THAT(status.message(), HasSubstr("has not entered allreduce #2"));
      EXPECT_THAT(status.message(), HasSubstr("its last call is #1 barrier"));
      EXPECT_EQ(status.fact("rank"), "1");
      EXPECT_EQ(status.fact("op"), "allreduce");
    }
    if (++left == comm.size() - 1) over = true;
    while (!over) std::this_thread::sleep_for(milliseconds(10));
    // Whoever comes late hears who gave up on what.
    ff::Status late = comm.allreduce(&data, &data, 1, DType::kFloat32, {RedOp::kSum})->wait();
    EXPECT_EQ(late.code(), ff::Code::kTimeout) << late.to_string();
    EXPECT_THAT(late.message(), HasSubstr("gave up"));
  });
}

TEST_P(Timeouts, AWaitThatExpiresLeavesTheOperationRunning) {
  std::atomic<int> expired{0};
  run_world(WorldShape::of(GetParam()), [&](Communicator& comm) {
    float data = 1;
    if (comm.rank() == 1) {
      while (expired < comm.size() - 1) std::this_thread::sleep_for(milliseconds(5));
      ASSERT_OK(comm.allreduce(&data, &data, 1, DType::kFloat32, {RedOp::kSum})->wait());
    } else {
      RequestPtr request = comm.allreduce(&data, &data, 1, DType::kFloat32, {RedOp::kSum});
      EXPECT_EQ(request->wait(milliseconds(50)).code(), ff::Code::kTimeout);
      EXPECT_FALSE(request->done());
      ++expired;
      ASSERT_OK(request->wait());
    }
    EXPECT_EQ(data, static_cast<float>(comm.size()));
    ASSERT_OK(comm.health());
  });
}

TEST_P(Timeouts, AbortReachesEveryone) {
  WorldShape shape = WorldShape::of(GetParam());
  MeetingPoint all(shape.size());
  run_world(shape, [&](Communicator& comm) {
    EXPECT_TRUE(comm.barrier()->wait().ok());
    all.wait();
    if (comm.rank() == 0) {
      comm.abort("the driver says so");
      comm.abort("twice is fine");
    }
    ff::Status status = comm.barrier()->wait();
    EXPECT_EQ(status.code(), ff::Code::kAborted) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank 0"));
    EXPECT_THAT(status.message(), HasSubstr("the driver says so"));
    comm.shutdown();
    comm.shutdown();
  });
}

TEST_P(Timeouts, LeavingEarlyIsNamed) {
  WorldShape shape = WorldShape::of(GetParam());
  MeetingPoint all(shape.size());
  run_world(shape, [&](Communicator& comm) {
    EXPECT_TRUE(comm.barrier()->wait().ok());
    all.wait();
    if (comm.rank() == 1) return;  // and so destroys its group
    ff::Status status = comm.barrier()->wait();
    EXPECT_EQ(status.code(), ff::Code::kPeerLost) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
    EXPECT_THAT(status.message(), HasSubstr("has left the group"));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Timeouts,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3},
                                         std::vector<int>{1, 1}, std::vector<int>{2, 2}),
                         [](const auto& info) {
                           std::string name = "nodes";
                           for (int n : info.param) name += "_" + std::to_string(n);
                           return name;
                         });

TEST(StartUp, NamesRanksThatDidNotArrive) {
  TempFolder folder;
  std::shared_ptr<Store> store;
  ASSERT_OK(FileStore::open(folder.path(), &store));
  auto engine = Engine::create(1 << 20);
  ASSERT_TRUE(engine.has_value());
  Options options;
  options.timeout = milliseconds(300);
  options.group_name = "world";
  std::shared_ptr<Communicator> comm;
  ff::Status status = Communicator::create(store, "", 1, 4, options, &comm, *engine);
  EXPECT_EQ(status.code(), ff::Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("missing: rank 0, 2, 3"));
  EXPECT_EQ(comm, nullptr);
}

TEST(StartUp, RefusesNonsense) {
  std::shared_ptr<Communicator> comm;
  EXPECT_EQ(Communicator::create(nullptr, "", 2, 2, {}, &comm).code(), ff::Code::kInvalidArgument);
  EXPECT_EQ(Communicator::create(nullptr, "", 0, 0, {}, &comm).code(), ff::Code::kInvalidArgument);
}

}  // namespace
}  // namespace hfreduce
