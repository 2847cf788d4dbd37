// SPDX-License-Identifier: Apache-2.0
//
// Partial sums on their way between nodes. A node's partial travels as accumulators, so that the
// result is rounded once; as elements where both are the same, where it is a single rank's input
// and so exact, or where the user wants it (HFREDUCE_WIRE=native).
#pragma once

#include <cstddef>
#include <vector>

#include "hfreduce/engine/communicator_impl.h"
#include "hfreduce/reduce/kernels.h"

namespace hfreduce {

struct Partial {
  const std::byte* data;
  bool native;  // elements; else accumulators
};

// Do the partials of `node` travel as elements of `size` bytes?
bool is_partial_native(const CommunicatorImpl& comm, const Kernels& kernels, std::size_t size,
                       int node);

// target = the sum of `partials`, in that order, of `count` elements each: as elements (scaled) or
// as accumulators. All-native partials stay elements in either case. `wide` has room for the
// accumulators of each native partial, and is used only where the partials are of both kinds.
void add_partials(const Kernels& kernels, const std::vector<Partial>& partials, std::size_t count,
                  std::byte* wide, std::byte* target, bool to_native, const Scale& scale);

}  // namespace hfreduce
