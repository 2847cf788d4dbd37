// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/options.h"

#include <utility>

namespace hfreduce::adapter {
namespace {

// The limits of the environment variables.
constexpr std::uint64_t kSmallestChunk = 4096;
constexpr std::uint64_t kLargestChunk = std::uint64_t{64} << 20;
constexpr int kMostStreams = 64;

ff::Status parse_algorithm(const std::string& name, Algorithm* out) {
  if (name == "auto") {
    *out = Algorithm::kAuto;
  } else if (name == "direct") {
    *out = Algorithm::kDirect;
  } else if (name == "tree") {
    *out = Algorithm::kTree;
  } else {
    return {ff::Code::kInvalidArgument,
            "Options.algorithm is '" + name + "'; use 'auto', 'direct' or 'tree'"};
  }
  return {};
}

}  // namespace

ff::Status BackendOptions::resolve(hfreduce::Options* out) const {
  ff::Status status = options_from_env(out);
  if (!status.ok()) return status;
  // torch always names a timeout; its default does not outweigh one from the environment.
  if (own_timeout || timeout != kBackendDefaultTimeout)
    out->timeout = own_timeout.value_or(timeout);
  if (algorithm) {
    status = parse_algorithm(*algorithm, &out->algorithm);
    if (!status.ok()) return status;
  }
  if (chunk_bytes) {
    if (*chunk_bytes < kSmallestChunk || *chunk_bytes > kLargestChunk) {
      return {ff::Code::kInvalidArgument, "Options.chunk_bytes is " + std::to_string(*chunk_bytes) +
                                              "; use " + std::to_string(kSmallestChunk) + " to " +
                                              std::to_string(kLargestChunk)};
    }
    out->chunk_bytes = *chunk_bytes;
  }
  if (streams) {
    if (*streams < 1 || *streams > kMostStreams) {
      return {ff::Code::kInvalidArgument, "Options.streams is " + std::to_string(*streams) +
                                              "; use 1 to " + std::to_string(kMostStreams)};
    }
    out->streams = *streams;
  }
  if (interfaces) out->interfaces = *interfaces;
  if (node) out->node = *node;
  if (zone) out->zone = *zone;
  if (shm) out->shm = *shm;
  if (native_wire) out->native_wire = *native_wire;
  if (arena_bytes) out->arena_bytes = *arena_bytes;

  if (out->timeout <= std::chrono::milliseconds::zero()) {
    return {ff::Code::kInvalidArgument,
            "the timeout is " + std::to_string(out->timeout.count()) + " ms; use a positive one"};
  }
  out->group_name = group_name;
  out->global_ranks.assign(global_ranks_in_group.begin(), global_ranks_in_group.end());
  return {};
}

c10::intrusive_ptr<BackendOptions> to_own(
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  if (const auto ours = c10::dynamic_intrusive_pointer_cast<BackendOptions>(options)) {
    return c10::make_intrusive<BackendOptions>(*ours);
  }
  auto own = c10::make_intrusive<BackendOptions>();
  if (options) {
    own->timeout = options->timeout;
    own->group_name = options->group_name;
    own->global_ranks_in_group = options->global_ranks_in_group;
  }
  return own;
}

}  // namespace hfreduce::adapter
