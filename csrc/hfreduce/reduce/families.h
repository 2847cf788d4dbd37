// SPDX-License-Identifier: Apache-2.0
//
// Families of kernels, each compiled once for each instruction set. A family's find() fills `out`
// and returns true when the pair of type and operation is one of its own.
#pragma once

#include "hfreduce/reduce/kernels.h"
#include "hfreduce/reduce/vector.h"

namespace hfreduce {

template <class Isa>
struct FloatSums {  // SUM, AVG, PREMUL_SUM of all floating and complex types
  static bool find(DType dtype, RedOp op, Kernels* out);
};
template <class Isa>
struct FloatOthers {  // PRODUCT, and MIN and MAX of types that have an order
  static bool find(DType dtype, RedOp op, Kernels* out);
};
template <class Isa>
struct Integers {  // SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR of bool and integers
  static bool find(DType dtype, RedOp op, Kernels* out);
};

template <class Isa>
bool find_in_families(DType dtype, RedOp op, Kernels* out) {
  return FloatSums<Isa>::find(dtype, op, out) || FloatOthers<Isa>::find(dtype, op, out) ||
         Integers<Isa>::find(dtype, op, out);
}

}  // namespace hfreduce
