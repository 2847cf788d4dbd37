// SPDX-License-Identifier: Apache-2.0
//
// Kernels: element-wise reductions of several source arrays into one, chosen at run time for the
// processor. For types of 16 bits and fewer a sum is held in fp32 (the accumulator type); rounding
// to the element type happens once, at the end.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "hfreduce/types.h"

namespace hfreduce {

struct Scale {
  double before = 1.0;  // multiplies every native input (PREMUL_SUM); applied only if != 1
  double after = 1.0;   // multiplies the result before its rounding (AVG); applied only if != 1
};

// dst[i] = src[0][i] op src[1][i] op ... op src[n-1][i], in that order.
//   dst2   a second destination with the same contents, or null
//   src    n >= 1 arrays of `count` elements; dst may be one of them
// Any alignment. Each result depends on its own elements alone, never on count or alignment.
using ReduceFn = void (*)(void* dst, void* dst2, const void* const* src, int n, std::size_t count,
                          const Scale& scale);

struct Kernels {
  ReduceFn native_to_native = nullptr;  // elements in, elements out: one node, or one hop
  ReduceFn native_to_acc = nullptr;     // elements in, accumulators out: a node's partial sum
  ReduceFn acc_to_acc = nullptr;        // partial sums in and out: inside a tree
  ReduceFn acc_to_native = nullptr;     // partial sums in, elements out: at a root
  std::size_t acc_size = 0;             // bytes of an accumulator; equal to size_of(dtype) when the
                                        // accumulator type is the element type
};

enum class Isa { kPortable, kAvx2, kAvx512 };

// The best instruction set of this processor; HFREDUCE_ISA=portable|avx2|avx512 lowers it.
Isa best_isa();
const char* name_of(Isa isa);

// The kernels for `dtype` and `op`. kUnsupported names the type, the operation and the cure (for
// example integer AVG: use SUM and divide).
ff::Status find_kernels(DType dtype, RedOp op, Kernels* out);
ff::Status find_kernels(DType dtype, RedOp op, Isa isa, Kernels* out);

}  // namespace hfreduce
