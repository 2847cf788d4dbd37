// SPDX-License-Identifier: Apache-2.0
//
// PRODUCT of floating and complex types, MIN and MAX of those that have an order.
#pragma once

#include "hfreduce/reduce/entry.h"
#include "hfreduce/reduce/ops.h"

namespace hfreduce {

template <class Isa, class T>
bool find_wide(RedOp op, Kernels* out) {
  using Elements = Raw<Isa, T>;
  using Results = Arithmetic<Isa, T>;
  if (op == RedOp::kProduct) {
    *out = same_kernels<Isa, Pass<Results, Multiply, Results, AsIs>>(sizeof(T));
  } else if (op == RedOp::kMin) {
    *out = same_kernels<Isa, Pass<Elements, Min, Elements, AsIs>>(sizeof(T));
  } else if (op == RedOp::kMax) {
    *out = same_kernels<Isa, Pass<Elements, Max, Elements, AsIs>>(sizeof(T));
  } else {
    return false;
  }
  return true;
}

template <class Isa, class F, class Op, int kPer = 1>
Kernels small_products() {
  using Unit = Small<Isa, F>;
  using Partials = typename Unit::Partials;
  using Fp32 = Arithmetic<Isa, float>;
  return {plain<Isa, Pass<Unit, Op, Unit, AsIs>, kPer>,
          plain<Isa, Pass<Unit, Op, Partials, ToMemoryOrder>, kPer>,
          plain<Isa, Pass<Fp32, Op, Fp32, AsIs>, kPer>,
          plain<Isa, Pass<Partials, Op, Unit, FromMemoryOrder>, kPer>, sizeof(float) * kPer};
}

// MIN and MAX choose among elements: nothing is rounded, so elements are accumulators.
template <class Isa, class F>
bool find_small(RedOp op, Kernels* out) {
  using Elements = Raw<Isa, typename F::Signed>;
  constexpr std::size_t kSize = sizeof(typename F::Word);
  if (op == RedOp::kProduct) {
    *out = small_products<Isa, F, Multiply>();
  } else if (op == RedOp::kMin) {
    *out = same_kernels<Isa, Pass<Elements, SmallExtreme<F, false>, Elements, AsIs>>(kSize);
  } else if (op == RedOp::kMax) {
    *out = same_kernels<Isa, Pass<Elements, SmallExtreme<F, true>, Elements, AsIs>>(kSize);
  } else {
    return false;
  }
  return true;
}

template <class Isa, class T>
Kernels complex_products() {
  using Unit = Arithmetic<Isa, T>;
  return same_kernels<Isa, Pass<Unit, ComplexMultiply, Unit, AsIs>, 2>(2 * sizeof(T));
}

template <class Isa>
bool FloatOthers<Isa>::find(DType dtype, RedOp op, Kernels* out) {
  switch (dtype) {
    case DType::kFloat16:
      return find_small<Isa, Float16>(op, out);
    case DType::kBFloat16:
      return find_small<Isa, BFloat16>(op, out);
    case DType::kFloat8E4M3FN:
      return find_small<Isa, Float8E4M3FN>(op, out);
    case DType::kFloat8E5M2:
      return find_small<Isa, Float8E5M2>(op, out);
    case DType::kFloat8E4M3FNUZ:
      return find_small<Isa, Float8E4M3FNUZ>(op, out);
    case DType::kFloat8E5M2FNUZ:
      return find_small<Isa, Float8E5M2FNUZ>(op, out);
    case DType::kFloat32:
      return find_wide<Isa, float>(op, out);
    case DType::kFloat64:
      return find_wide<Isa, double>(op, out);
    case DType::kComplex32:
      if (op != RedOp::kProduct) return false;
      *out = small_products<Isa, Float16, ComplexMultiply, 2>();
      return true;
    case DType::kComplex64:
      if (op != RedOp::kProduct) return false;
      *out = complex_products<Isa, float>();
      return true;
    case DType::kComplex128:
      if (op != RedOp::kProduct) return false;
      *out = complex_products<Isa, double>();
      return true;
    default:
      return false;
  }
}

}  // namespace hfreduce
