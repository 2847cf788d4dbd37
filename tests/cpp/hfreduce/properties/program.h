// SPDX-License-Identifier: Apache-2.0
//
// A random world and a random program for it: the operations that its ranks will call, in order.
// All of it follows from one seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "hfreduce/properties/reference.h"
#include "hfreduce/world.h"

namespace hfreduce {

struct Step {
  OpKind kind = OpKind::kBarrier;  // kSend: a message from `root` to `to`
  DType dtype = DType::kFloat32;
  RedOp op = RedOp::kSum;
  std::vector<double> factors;  // by rank
  // Elements. One, or one for each rank (allgather, reduce_scatter), or one for each pair
  // (alltoall, [from * ranks + to]).
  std::vector<std::size_t> counts;
  int root = -1;
  int to = -1;
  std::uint32_t tag = 0;
  bool from_any = false;

  std::size_t bytes(std::size_t which) const { return counts[which] * size_of(dtype); }
  std::string to_string() const {
    std::string text(name_of(kind));
    text += "(" + std::string(name_of(dtype)) + " " + std::string(name_of(op)) + ", root " +
            std::to_string(root) + ", elements";
    for (std::size_t count : counts) text += " " + std::to_string(count);
    return text + ")";
  }
};

struct Program {
  std::uint64_t seed = 0;
  WorldShape shape;
  bool delays = false;
  std::uint64_t below = 4;  // elements of floating types are smaller
  std::vector<Step> steps;

  int size() const { return shape.size(); }
  // Block `which` of what `rank` puts into a step.
  Block input(std::size_t step, int rank, std::size_t which, std::size_t count) const {
    std::mt19937_64 random(seed + step * 1000003 + static_cast<std::uint64_t>(rank) * 10007 +
                           which * 101);
    return random_block(steps[step].dtype, count, below, random);
  }
  std::string to_string() const {
    std::string text = "nodes of the ranks:";
    for (int node : shape.nodes) text += " " + std::to_string(node);
    return text + "; algorithm " + std::to_string(static_cast<int>(shape.options.algorithm)) +
           ", chunk_bytes " + std::to_string(shape.options.chunk_bytes) + ", shm " +
           std::to_string(shape.options.shm) + ", native_wire " +
           std::to_string(shape.options.native_wire) + ", delays " + std::to_string(delays);
  }
};

class ProgramMaker {
 public:
  explicit ProgramMaker(std::uint64_t seed) : random_(seed) { program_.seed = seed; }

  Program make() {
    make_world();
    const std::size_t steps = 1 + below(25);
    for (std::size_t i = 0; i < steps; ++i) program_.steps.push_back(make_step());
    return std::move(program_);
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  template <typename T>
  T one_of(const std::vector<T>& values) {
    return values[below(values.size())];
  }

  void make_world() {
    const std::uint64_t ranks = 1 + below(6);
    const std::uint64_t nodes = 1 + below(std::min<std::uint64_t>(ranks, 4));
    for (std::uint64_t r = 0; r < ranks; ++r) {
      program_.shape.nodes.push_back(static_cast<int>(below(nodes)));
    }
    Options& options = program_.shape.options;
    options.algorithm = one_of<Algorithm>({Algorithm::kAuto, Algorithm::kDirect, Algorithm::kTree});
    options.chunk_bytes = one_of<std::size_t>({0, 0, 4096, 5000, 65536});
    options.shm = below(8) != 0;
    options.native_wire = below(4) == 0;
    // Sums of ones are exact in eight bits as well.
    if (options.native_wire) program_.below = 2;
    program_.delays = below(3) == 0;
  }

  // Mostly short, of all magnitudes, and around powers of two.
  std::size_t count() {
    const std::size_t magnitude = std::size_t{1} << below(below(4) == 0 ? 19 : 13);
    switch (below(4)) {
      case 0:
        return below(12);
      case 1:
        return magnitude + below(3) - 1;
      default:
        return below(magnitude) + 1;
    }
  }

  Step make_step() {
    Step step;
    step.kind = one_of<OpKind>({OpKind::kAllreduce, OpKind::kAllreduce, OpKind::kAllreduce,
                                OpKind::kReduce, OpKind::kBroadcast, OpKind::kAllgather,
                                OpKind::kReduceScatter, OpKind::kAlltoall, OpKind::kGather,
                                OpKind::kScatter, OpKind::kBarrier, OpKind::kSend});
    const auto ranks = static_cast<std::uint64_t>(program_.size());
    if (step.kind == OpKind::kSend && ranks == 1) step.kind = OpKind::kAllreduce;
    do {
      step.dtype = static_cast<DType>(below(kDTypeCount));
      step.op = static_cast<RedOp>(below(kRedOpCount));
    } while (!is_comparable(step.dtype, step.op));
    for (std::uint64_t r = 0; r < ranks; ++r) {
      step.factors.push_back(one_of<double>({0.5, 1.0, 2.0, -1.0}));
    }
    step.root = static_cast<int>(below(ranks));
    std::uint64_t blocks = 1;
    if (step.kind == OpKind::kAllgather || step.kind == OpKind::kReduceScatter) blocks = ranks;
    if (step.kind == OpKind::kAlltoall) blocks = ranks * ranks;
    const bool alike = below(2) == 0;
    for (std::uint64_t b = 0; b < blocks; ++b) {
      step.counts.push_back(alike && b > 0 ? step.counts[0] : count());
    }
    if (step.kind == OpKind::kSend) {
      step.to = static_cast<int>((step.root + 1 + below(ranks - 1)) % ranks);
      step.from_any = below(4) == 0;
      // Messages of one tag keep their order; one for any receiver needs a tag of its own.
      step.tag = static_cast<std::uint32_t>(step.from_any ? 100 + program_.steps.size() : below(2));
    }
    return step;
  }

  std::mt19937_64 random_;
  Program program_;
};

}  // namespace hfreduce
