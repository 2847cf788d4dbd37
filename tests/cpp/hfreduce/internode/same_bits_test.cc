// SPDX-License-Identifier: Apache-2.0
//
// A sum's bits follow from the inputs, the layout and the algorithm. They do not follow from the
// rank that looks, from the chunk size, or from who was early or late.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hfreduce/delays.h"
#include "hfreduce/seed.h"
#include "hfreduce/world.h"

namespace hfreduce {
namespace {

struct Case {
  const char* name;
  Algorithm algorithm;
  std::vector<int> ranks_per_node;
};

class SameBits : public testing::TestWithParam<Case> {};

const std::vector<std::size_t> kCounts = {3, 1500, 7001, 20000, 300007};
constexpr std::array<std::size_t, 3> kChunkBytes = {4096, 49152, std::size_t{1} << 20};

// Elements of very unlike size: nearly every addition rounds, so another order shows.
template <typename Element>
std::vector<Element> random_elements(std::size_t count, std::mt19937_64& random) {
  std::vector<Element> elements(count);
  for (Element& element : elements) {
    auto bits = static_cast<std::uint32_t>(random());
    bits = (bits & 0x807fffffU) | (115 + bits % 24) << 23;  // the exponent: 2^-12 to 2^11
    bits >>= 8 * (sizeof(bits) - sizeof(Element));
    std::memcpy(&element, &bits, sizeof(Element));
  }
  return elements;
}

// What each rank got of each count, one after the other.
template <typename Element>
std::vector<std::vector<Element>> results_of(const Case& with, DType dtype, std::size_t chunk_bytes,
                                             std::uint64_t seed) {
  WorldShape shape = WorldShape::of(with.ranks_per_node);
  shape.options.algorithm = with.algorithm;
  shape.options.chunk_bytes = chunk_bytes;
  std::vector<std::vector<Element>> results(shape.size());
  run_world(shape, [&](Communicator& comm) {
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(comm.rank()));
    std::mt19937_64 pauses(seed + chunk_bytes + static_cast<std::uint64_t>(comm.rank()) * 1000);
    std::vector<std::vector<Element>> data;
    for (std::size_t count : kCounts) data.push_back(random_elements<Element>(count, random));
    const std::vector<std::vector<Element>> inputs = data;
    std::vector<RequestPtr> requests;
    for (auto& elements : data) {
      if (pauses() % 2 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(pauses() % 5000));
      }
      requests.push_back(
          comm.allreduce(elements.data(), elements.data(), elements.size(), dtype, {RedOp::kSum}));
    }
    for (auto& request : requests) ASSERT_OK(request->wait());
    for (std::size_t i = 0; i < data.size(); ++i) {
      results[comm.rank()].insert(results[comm.rank()].end(), data[i].begin(), data[i].end());
      // Buffers that the node shares take another way to the same sum.
      auto shared = comm.allocate(data[i].size() * sizeof(Element));
      std::vector<Element> own = inputs[i];  // where a rank is alone on its node
      auto* elements = shared ? static_cast<Element*>(shared.get()) : own.data();
      std::copy(inputs[i].begin(), inputs[i].end(), elements);
      ASSERT_OK(comm.allreduce(elements, elements, data[i].size(), dtype, {RedOp::kSum})->wait());
      ASSERT_EQ(std::memcmp(elements, data[i].data(), data[i].size() * sizeof(Element)), 0)
          << "in shared memory, " << data[i].size() << " elements";
    }
  });
  return results;
}

template <typename Element>
void expect_same_bits(const Case& with, DType dtype, std::uint64_t seed) {
  SCOPED_TRACE(std::string(name_of(dtype)));
  RandomDelays delays(seed);
  std::vector<Element> first;
  for (std::size_t chunk_bytes : kChunkBytes) {
    auto results = results_of<Element>(with, dtype, chunk_bytes, seed);
    if (testing::Test::HasFatalFailure()) return;
    if (first.empty()) first = results[0];
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      ASSERT_EQ(results[rank].size(), first.size());
      for (std::size_t i = 0; i < first.size(); ++i) {
        ASSERT_EQ(std::memcmp(&results[rank][i], &first[i], sizeof(Element)), 0)
            << "chunks of " << chunk_bytes << " bytes, rank " << rank << ", element " << i << ": "
            << results[rank][i] << ", with chunks of " << kChunkBytes[0] << " bytes on rank 0 "
            << first[i];
      }
    }
  }
}

TEST_P(SameBits, OnAllRanksWithAllChunkSizesAndDelays) {
  Seed seed;
  expect_same_bits<float>(GetParam(), DType::kFloat32, seed.value());
  expect_same_bits<std::uint16_t>(GetParam(), DType::kBFloat16, seed.value());
}

INSTANTIATE_TEST_SUITE_P(Worlds, SameBits,
                         testing::Values(Case{"one_node", Algorithm::kAuto, {4}},
                                         Case{"auto", Algorithm::kAuto, {2, 2}},
                                         Case{"direct_1_1_1", Algorithm::kDirect, {1, 1, 1}},
                                         Case{"direct_2_1_2", Algorithm::kDirect, {2, 1, 2}},
                                         Case{"tree_1_1_1_1_1", Algorithm::kTree, {1, 1, 1, 1, 1}},
                                         Case{"tree_2_1_2", Algorithm::kTree, {2, 1, 2}},
                                         Case{"tree_2_2_2_2", Algorithm::kTree, {2, 2, 2, 2}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hfreduce
