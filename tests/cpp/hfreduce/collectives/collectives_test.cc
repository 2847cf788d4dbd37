// SPDX-License-Identifier: Apache-2.0
//
// Every collective, on every shape of world, against values computed from the ranks' known inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "hfreduce/world.h"

namespace hfreduce {
namespace {

struct Case {
  const char* name;
  std::vector<int> ranks_per_node;
  Algorithm algorithm = Algorithm::kAuto;
  std::size_t chunk_bytes = 0;
  bool shm = true;
  int streams = 0;
};

class Collectives : public testing::TestWithParam<Case> {
 protected:
  WorldShape shape() const {
    WorldShape shape = WorldShape::of(GetParam().ranks_per_node);
    shape.options.algorithm = GetParam().algorithm;
    shape.options.chunk_bytes = GetParam().chunk_bytes;
    shape.options.shm = GetParam().shm;
    shape.options.streams = GetParam().streams;
    return shape;
  }
};

// A small whole number, so that sums are exact in any order.
float value(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101);
}

std::vector<float> input(int rank, std::size_t count) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = value(rank, i);
  return data;
}

const std::vector<std::size_t> kCounts = {0,    1,     2,     7,      10,     11,     16,
                                          1000, 10007, 65536, 100003, 262144, 1000001};

TEST_P(Collectives, Allreduce) {
  run_world(shape(), [](Communicator& comm) {
    for (std::size_t count : kCounts) {
      for (bool in_place : {true, false}) {
        std::vector<float> in = input(comm.rank(), count);
        std::vector<float> out(count, -1);
        float* target = in_place ? in.data() : out.data();
        ASSERT_OK(comm.allreduce(in.data(), target, count, DType::kFloat32, {RedOp::kSum})->wait());
        for (std::size_t i = 0; i < count; ++i) {
          float expected = 0;
          for (int r = 0; r < comm.size(); ++r) expected += value(r, i);
          ASSERT_EQ(target[i], expected) << "count " << count << " element " << i;
        }
      }
    }
  });
}

TEST_P(Collectives, AllreduceInArena) {
  run_world(shape(), [](Communicator& comm) {
    for (std::size_t count : {std::size_t{1000}, std::size_t{700001}}) {
      auto memory = comm.allocate(count * sizeof(float));
      std::vector<float> ordinary(count);
      float* data = memory ? static_cast<float*>(memory.get()) : ordinary.data();
      // Rank 1 uses ordinary memory in the second round: all must come to the same decision.
      for (int round = 0; round < 3; ++round) {
        float* mine = round == 1 && comm.rank() == 1 ? ordinary.data() : data;
        for (std::size_t i = 0; i < count; ++i) mine[i] = value(comm.rank(), i);
        ASSERT_OK(comm.allreduce(mine, mine, count, DType::kFloat32, {RedOp::kSum})->wait());
        for (std::size_t i = 0; i < count; ++i) {
          float expected = 0;
          for (int r = 0; r < comm.size(); ++r) expected += value(r, i);
          ASSERT_EQ(mine[i], expected) << "round " << round << " element " << i;
        }
      }
    }
  });
}

TEST_P(Collectives, AllreduceLowPrecisionRoundsOnce) {
  run_world(shape(), [](Communicator& comm) {
    // 2^8 + n * 0.5: in bfloat16 every single addition would be rounded away.
    for (std::size_t count : {std::size_t{3}, std::size_t{5000}, std::size_t{300000}}) {
      auto bf16 = [](float v) {
        std::uint32_t bits;
        std::memcpy(&bits, &v, 4);
        return static_cast<std::uint16_t>(bits >> 16);
      };
      std::vector<std::uint16_t> data(count, comm.rank() == 0 ? bf16(256.0F) : bf16(0.5F));
      ASSERT_OK(
          comm.allreduce(data.data(), data.data(), count, DType::kBFloat16, {RedOp::kSum})->wait());
      float exact = 256.0F + 0.5F * static_cast<float>(comm.size() - 1);
      // Spacing of bfloat16 here is 2; the exact sum rounds to the even neighbour.
      float expected = 2.0F * std::nearbyint(exact / 2.0F);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], bf16(expected)) << i;
    }
  });
}

TEST_P(Collectives, AverageAndPremultiplied) {
  run_world(shape(), [](Communicator& comm) {
    for (std::size_t count : {std::size_t{5}, std::size_t{50000}}) {
      std::vector<double> data(count, comm.rank() + 1.0);
      ASSERT_OK(
          comm.allreduce(data.data(), data.data(), count, DType::kFloat64, {RedOp::kAvg})->wait());
      for (double v : data) ASSERT_DOUBLE_EQ(v, (comm.size() + 1) / 2.0);
      std::fill(data.begin(), data.end(), 1.0);
      Reduction premul{RedOp::kPremulSum, comm.rank() + 1.0};
      ASSERT_OK(comm.allreduce(data.data(), data.data(), count, DType::kFloat64, premul)->wait());
      double expected = comm.size() * (comm.size() + 1) / 2.0;
      for (double v : data) ASSERT_DOUBLE_EQ(v, expected);
    }
  });
}

TEST_P(Collectives, Reduce) {
  run_world(shape(), [](Communicator& comm) {
    for (std::size_t count : kCounts) {
      int root = static_cast<int>(count) % comm.size();
      std::vector<float> in = input(comm.rank(), count);
      std::vector<float> out(count, -1);
      ASSERT_OK(
          comm.reduce(in.data(), out.data(), count, DType::kFloat32, {RedOp::kMax}, root)->wait());
      for (std::size_t i = 0; i < count; ++i) {
        float expected = value(0, i);
        for (int r = 1; r < comm.size(); ++r) expected = std::max(expected, value(r, i));
        ASSERT_EQ(out[i], comm.rank() == root ? expected : -1) << "element " << i;
        ASSERT_EQ(in[i], value(comm.rank(), i)) << "an input was written to";
      }
    }
  });
}

TEST_P(Collectives, Broadcast) {
  run_world(shape(), [](Communicator& comm) {
    for (std::size_t count : kCounts) {
      for (int root = 0; root < comm.size(); ++root) {
        std::vector<float> data = input(comm.rank(), count);
        ASSERT_OK(comm.broadcast(data.data(), count, DType::kFloat32, root)->wait());
        ASSERT_EQ(data, input(root, count));
      }
    }
  });
}

TEST_P(Collectives, AllgatherOfUnequalBlocks) {
  run_world(shape(), [](Communicator& comm) {
    for (std::size_t count : kCounts) {
      auto block = [&](int r) { return count / static_cast<std::size_t>(r + 1); };
      std::vector<float> in = input(comm.rank(), block(comm.rank()));
      std::vector<std::vector<float>> blocks;
      std::vector<Bytes> out;
      for (int r = 0; r < comm.size(); ++r) blocks.emplace_back(block(r), -1.0F);
      for (auto& b : blocks) out.push_back({b.data(), b.size() * sizeof(float)});
      ASSERT_OK(
          comm.allgather({in.data(), in.size() * sizeof(float)}, out, DType::kFloat32)->wait());
      for (int r = 0; r < comm.size(); ++r) ASSERT_EQ(blocks[r], input(r, block(r)));
    }
  });
}

TEST_P(Collectives, ReduceScatterOfUnequalBlocks) {
  run_world(shape(), [](Communicator& comm) {
    for (std::size_t count : kCounts) {
      auto block = [&](int r) { return count / static_cast<std::size_t>(r + 1); };
      std::vector<std::vector<float>> blocks;
      std::vector<ConstBytes> in;
      for (int r = 0; r < comm.size(); ++r) blocks.push_back(input(comm.rank() + r, block(r)));
      for (auto& b : blocks) in.push_back({b.data(), b.size() * sizeof(float)});
      std::vector<float> out(block(comm.rank()), -1);
      ASSERT_OK(comm.reduce_scatter(in, {out.data(), out.size() * sizeof(float)}, DType::kFloat32,
                                    {RedOp::kSum})
                    ->wait());
      for (std::size_t i = 0; i < out.size(); ++i) {
        float expected = 0;
        for (int r = 0; r < comm.size(); ++r) expected += value(comm.rank() + r, i);
        ASSERT_EQ(out[i], expected);
      }
    }
  });
}

TEST_P(Collectives, AlltoallOfUnequalBlocks) {
  run_world(shape(), [](Communicator& comm) {
    for (std::size_t count : kCounts) {
      auto block = [&](int from, int to) {
        return count / static_cast<std::size_t>(1 + (from * 3 + to) % 5);
      };
      const int n = comm.size();
      const int me = comm.rank();
      std::vector<std::vector<float>> sources;
      std::vector<std::vector<float>> targets;
      std::vector<ConstBytes> in;
      std::vector<Bytes> out;
      for (int r = 0; r < n; ++r) sources.push_back(input(me * n + r, block(me, r)));
      for (int r = 0; r < n; ++r) targets.emplace_back(block(r, me), -1.0F);
      for (auto& b : sources) in.push_back({b.data(), b.size() * sizeof(float)});
      for (auto& b : targets) out.push_back({b.data(), b.size() * sizeof(float)});
      ASSERT_OK(comm.alltoall(in, out, DType::kFloat32)->wait());
      for (int r = 0; r < n; ++r) ASSERT_EQ(targets[r], input(r * n + me, block(r, me)));
    }
  });
}

TEST_P(Collectives, GatherAndScatter) {
  run_world(shape(), [](Communicator& comm) {
    for (std::size_t count : kCounts) {
      int root = static_cast<int>(count) % comm.size();
      std::vector<float> mine = input(comm.rank(), count);
      std::vector<float> all(comm.rank() == root ? count * comm.size() : 0, -1);
      std::vector<Bytes> out;
      std::vector<ConstBytes> in;
      for (int r = 0; r < comm.size() && comm.rank() == root; ++r) {
        out.push_back({all.data() + count * r, count * sizeof(float)});
        in.push_back({all.data() + count * r, count * sizeof(float)});
      }
      ConstBytes source{mine.data(), count * sizeof(float)};
      ASSERT_OK(comm.gather(source, out, DType::kFloat32, root)->wait());
      for (int r = 0; r < comm.size() && comm.rank() == root; ++r) {
        ASSERT_TRUE(std::equal(all.begin() + static_cast<std::ptrdiff_t>(count) * r,
                               all.begin() + static_cast<std::ptrdiff_t>(count) * (r + 1),
                               input(r, count).begin()));
      }
      std::vector<float> back(count, -1);
      ASSERT_OK(
          comm.scatter(in, {back.data(), count * sizeof(float)}, DType::kFloat32, root)->wait());
      ASSERT_EQ(back, mine);
    }
  });
}

TEST_P(Collectives, MessagesMatchByTagAndOrder) {
  run_world(shape(), [](Communicator& comm) {
    if (comm.size() < 2) return;
    const int next = (comm.rank() + 1) % comm.size();
    const int last = (comm.rank() + comm.size() - 1) % comm.size();
    for (std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{3000}, std::size_t{900000}}) {
      std::vector<std::vector<float>> sent;
      std::vector<std::vector<float>> got(4, std::vector<float>(count, -1));
      for (int k = 0; k < 4; ++k) sent.push_back(input(comm.rank() * 4 + k, count));
      std::vector<RequestPtr> requests;
      for (int k = 0; k < 4; ++k) {
        ConstBytes data{sent[k].data(), count * sizeof(float)};
        requests.push_back(comm.send(data, next, k % 2 == 0 ? 5 : 9));
      }
      for (int k : {1, 3, 0, 2}) {
        Bytes data{got[k].data(), count * sizeof(float)};
        requests.push_back(comm.recv(data, last, k % 2 == 0 ? 5 : 9));
      }
      for (auto& request : requests) ASSERT_OK(request->wait());
      for (int k = 0; k < 4; ++k) ASSERT_EQ(got[k], input(last * 4 + k, count));
    }
    // From any source: rank 0 hears once from each other.
    int token = comm.rank();
    if (comm.rank() != 0) {
      ASSERT_OK(comm.send({&token, sizeof(token)}, 0, 77)->wait());
    } else {
      std::vector<bool> heard(static_cast<std::size_t>(comm.size()), false);
      for (int i = 1; i < comm.size(); ++i) {
        int from = -1;
        RequestPtr request = comm.recv_any({&from, sizeof(from)}, 77);
        ASSERT_OK(request->wait());
        ASSERT_EQ(request->source(), from);
        ASSERT_FALSE(heard[from]);
        heard[from] = true;
      }
    }
  });
}

TEST_P(Collectives, ManyInFlight) {
  run_world(shape(), [](Communicator& comm) {
    constexpr int kOps = 200;
    std::vector<std::vector<float>> data;
    std::vector<RequestPtr> requests;
    for (int op = 0; op < kOps; ++op) data.push_back(input(comm.rank() + op, 1 + op * 97 % 5000));
    for (int op = 0; op < kOps; ++op) {
      auto& d = data[op];
      switch (op % 3) {
        case 0:
          requests.push_back(
              comm.allreduce(d.data(), d.data(), d.size(), DType::kFloat32, {RedOp::kSum}));
          break;
        case 1:
          requests.push_back(comm.broadcast(d.data(), d.size(), DType::kFloat32, op % comm.size()));
          break;
        default:
          requests.push_back(comm.barrier());
      }
    }
    for (int op = kOps - 1; op >= 0; --op) ASSERT_OK(requests[op]->wait());
    for (int op = 0; op < kOps; ++op) {
      for (std::size_t i = 0; i < data[op].size(); ++i) {
        float expected = 0;
        if (op % 3 == 0) {
          for (int r = 0; r < comm.size(); ++r) expected += value(r + op, i);
        } else {
          expected = value((op % 3 == 1 ? op % comm.size() : comm.rank()) + op, i);
        }
        ASSERT_EQ(data[op][i], expected) << "op " << op;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, Collectives,
    testing::Values(Case{"one", {1}}, Case{"two", {2}}, Case{"three", {3}}, Case{"five", {5}},
                    Case{"two_small_chunks", {2}, Algorithm::kAuto, 4096},
                    Case{"two_by_tcp", {2}, Algorithm::kAuto, 0, false}, Case{"nodes_1_1", {1, 1}},
                    Case{"nodes_2_2", {2, 2}},
                    Case{"nodes_1_2_3", {1, 2, 3}, Algorithm::kDirect, 8192},
                    Case{"tree_1_1_1_1_1", {1, 1, 1, 1, 1}, Algorithm::kTree, 16384},
                    Case{"tree_2_1_2", {2, 1, 2}, Algorithm::kTree},
                    Case{"three_streams_2_1", {2, 1}, Algorithm::kAuto, 0, true, 3}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hfreduce
