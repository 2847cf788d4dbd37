// SPDX-License-Identifier: Apache-2.0
//
// Allreduce and reduce. Three shapes of one operation:
//   alone   one rank: a copy, scaled
//   small   one step: all contributions are read by all, each reduces everything itself
//   staged  the message in chunks, each chunk in slices, one a member; a member reduces its slice
//           of every chunk and the others copy the result (docs/collectives.md)
// and, between nodes, an exchange of every chunk by its owners (internode.h).
#pragma once

#include <cstddef>
#include <memory>

#include "hfreduce/engine/communicator_impl.h"
#include "hfreduce/reduce/kernels.h"

namespace hfreduce {

struct ReduceArgs {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;  // null: this rank does not want the result
  std::size_t count = 0;     // elements
  std::size_t size = 0;      // bytes of an element
  DType dtype = DType::kFloat32;
  Kernels kernels;
  Scale scale;
  int root = -1;  // -1: all ranks get the result
};

// Kernels for a reduction over `ranks` ranks, and what the result is multiplied by.
ff::Status prepare_reduction(DType dtype, Reduction reduction, int ranks, Kernels* kernels,
                             Scale* scale);

std::shared_ptr<Op> make_lone_reduce(std::shared_ptr<CommunicatorImpl> comm,
                                     const OpDescriptor& descriptor, const ReduceArgs& args);
std::shared_ptr<Op> make_small_reduce(std::shared_ptr<CommunicatorImpl> comm,
                                      const OpDescriptor& descriptor, const ReduceArgs& args);
std::shared_ptr<Op> make_staged_reduce(std::shared_ptr<CommunicatorImpl> comm,
                                       const OpDescriptor& descriptor, const ReduceArgs& args);
std::shared_ptr<Op> make_internode_reduce(std::shared_ptr<CommunicatorImpl> comm,
                                          const OpDescriptor& descriptor, const ReduceArgs& args);

}  // namespace hfreduce
