// SPDX-License-Identifier: Apache-2.0
//
// Bool and integers. Sums and products wrap around, hence are those of the unsigned type; bitwise
// operations are those of bytes.
#pragma once

#include <type_traits>

#include "hfreduce/reduce/entry.h"
#include "hfreduce/reduce/ops.h"

namespace hfreduce {

template <class Isa, class T, class Op>
Kernels integer_kernels() {
  using Unit = Raw<Isa, T>;
  return same_kernels<Isa, Pass<Unit, Op, Unit, AsIs>>(sizeof(T));
}

template <class Isa, class Op, int kSize>
Kernels byte_kernels() {
  using Unit = Raw<Isa, std::uint8_t>;
  return same_kernels<Isa, Pass<Unit, Op, Unit, AsIs>, kSize>(kSize);
}

template <class Isa, class T>
bool find_integer(RedOp op, Kernels* out) {
  using Unsigned = std::make_unsigned_t<T>;
  switch (op) {
    case RedOp::kSum:
      *out = integer_kernels<Isa, Unsigned, Add>();
      return true;
    case RedOp::kProduct:
      *out = integer_kernels<Isa, Unsigned, Multiply>();
      return true;
    case RedOp::kMin:
      *out = integer_kernels<Isa, T, Min>();
      return true;
    case RedOp::kMax:
      *out = integer_kernels<Isa, T, Max>();
      return true;
    case RedOp::kBand:
      *out = byte_kernels<Isa, And, sizeof(T)>();
      return true;
    case RedOp::kBor:
      *out = byte_kernels<Isa, Or, sizeof(T)>();
      return true;
    case RedOp::kBxor:
      *out = byte_kernels<Isa, Xor, sizeof(T)>();
      return true;
    default:
      return false;
  }
}

// true is 1: a sum or a maximum is true when any is, a product or a minimum when all are.
template <class Isa>
bool find_bool(RedOp op, Kernels* out) {
  switch (op) {
    case RedOp::kSum:
    case RedOp::kMax:
    case RedOp::kBor:
      *out = byte_kernels<Isa, Or, 1>();
      return true;
    case RedOp::kProduct:
    case RedOp::kMin:
    case RedOp::kBand:
      *out = byte_kernels<Isa, And, 1>();
      return true;
    case RedOp::kBxor:
      *out = byte_kernels<Isa, Xor, 1>();
      return true;
    default:
      return false;
  }
}

template <class Isa>
bool Integers<Isa>::find(DType dtype, RedOp op, Kernels* out) {
  switch (dtype) {
    case DType::kBool:
      return find_bool<Isa>(op, out);
    case DType::kUInt8:
      return find_integer<Isa, std::uint8_t>(op, out);
    case DType::kInt8:
      return find_integer<Isa, std::int8_t>(op, out);
    case DType::kUInt16:
      return find_integer<Isa, std::uint16_t>(op, out);
    case DType::kInt16:
      return find_integer<Isa, std::int16_t>(op, out);
    case DType::kUInt32:
      return find_integer<Isa, std::uint32_t>(op, out);
    case DType::kInt32:
      return find_integer<Isa, std::int32_t>(op, out);
    case DType::kUInt64:
      return find_integer<Isa, std::uint64_t>(op, out);
    case DType::kInt64:
      return find_integer<Isa, std::int64_t>(op, out);
    default:
      return false;
  }
}

}  // namespace hfreduce
