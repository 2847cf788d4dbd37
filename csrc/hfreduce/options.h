// SPDX-License-Identifier: Apache-2.0
//
// Options of a communicator. Every field has an environment variable of the same meaning
// (HFREDUCE_..., see docs/options.md), read by options_from_env(); a value set in code wins.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"

namespace hfreduce {

inline constexpr int kMostStreams = 64;

enum class Algorithm {
  kAuto,    // a table on message size and layout picks
  kDirect,  // every node sends each part to the node that reduces it, and gets the result back
  kTree,    // double binary tree, pipelined by chunk
};

inline constexpr std::size_t kMostChunkBytes = std::size_t{64} << 20;

struct Options {
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  // of an operation and of start-up
  Algorithm algorithm = Algorithm::kAuto;                       // HFREDUCE_ALGO=auto|direct|tree
  std::size_t chunk_bytes = 0;  // HFREDUCE_CHUNK_BYTES; 0: chosen by the table
  int streams = 0;              // HFREDUCE_STREAMS; TCP connections a pair; 0: one
  std::string interfaces;       // HFREDUCE_SOCKET_IFNAME, NCCL syntax: =eth0,^lo
  std::string node;             // HFREDUCE_NODE: splits the ranks of one host
  std::string zone;             // HFREDUCE_ZONE: network zone of this node
  bool shm = true;              // HFREDUCE_SHM=0: TCP inside a node too
  bool native_wire = false;     // HFREDUCE_WIRE=native: partial sums in 16 bits
  std::size_t arena_bytes = std::size_t{1} << 30;  // HFREDUCE_ARENA_BYTES; bound of shared tensors
  std::string group_name;                          // in errors and logs only
  std::vector<int> global_ranks;                   // of this group's ranks; empty: 0..size-1
};

// Reads the environment into `options`. kInvalidArgument names the variable, the value and what is
// accepted.
ff::Status options_from_env(Options* options);

}  // namespace hfreduce
