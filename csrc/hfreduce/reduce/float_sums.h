// SPDX-License-Identifier: Apache-2.0
//
// SUM, AVG and PREMUL_SUM of floating and complex types. A complex sum is that of the parts.
#pragma once

#include "hfreduce/reduce/entry.h"
#include "hfreduce/reduce/ops.h"

namespace hfreduce {

// kBefore and kAfter: whether the inputs, and the results, are elements and not partial sums.
// kFixed: whether there is code of its own for up to four sources.
template <class Isa, class In, class Out, class Finish, bool kBefore, bool kAfter, bool kFixed,
          int kPer>
void sum(void* dst, void* dst2, const void* const* src, int n, std::size_t count,
         const Scale& scale) {
  const FpMode<Isa> mode;
  count *= kPer;
  const double before = kBefore ? scale.before : 1.0;
  const double after = kAfter ? scale.after : 1.0;
  using Factor = typename In::Factor;
  const Factors<Factor> factors = {static_cast<Factor>(before), static_cast<Factor>(after)};
  if constexpr (kBefore) {
    if (before != 1.0) {
      using Scaled = Pass<In, Add, Out, Finish, true, kAfter>;
      return run<Scaled, 0>(dst, dst2, src, n, count, factors);
    }
  }
  if constexpr (kAfter) {
    if (after != 1.0) {
      using Scaled = Pass<In, Add, Out, Finish, false, true>;
      return run<Scaled, 0>(dst, dst2, src, n, count, factors);
    }
  }
  using Unscaled = Pass<In, Add, Out, Finish>;
  if constexpr (kFixed) {
    switch (n) {
      case 1:
        return run<Unscaled, 1>(dst, dst2, src, n, count, factors);
      case 2:
        return run<Unscaled, 2>(dst, dst2, src, n, count, factors);
      case 3:
        return run<Unscaled, 3>(dst, dst2, src, n, count, factors);
      case 4:
        return run<Unscaled, 4>(dst, dst2, src, n, count, factors);
      default:
        break;
    }
  }
  run<Unscaled, 0>(dst, dst2, src, n, count, factors);
}

// fp32 and fp64.
template <class Isa, class T, int kPer = 1>
Kernels wide_sums() {
  using Unit = Arithmetic<Isa, T>;
  return {sum<Isa, Unit, Unit, AsIs, true, true, true, kPer>,
          sum<Isa, Unit, Unit, AsIs, true, false, true, kPer>,
          sum<Isa, Unit, Unit, AsIs, false, false, true, kPer>,
          sum<Isa, Unit, Unit, AsIs, false, true, true, kPer>, sizeof(T) * kPer};
}

// 16 and 8 bits, with partial sums in fp32.
template <class Isa, class F, bool kFixed, int kPer = 1>
Kernels small_sums() {
  using Unit = Small<Isa, F>;
  using Partials = typename Unit::Partials;
  using Fp32 = Arithmetic<Isa, float>;
  return {sum<Isa, Unit, Unit, AsIs, true, true, kFixed, kPer>,
          sum<Isa, Unit, Partials, ToMemoryOrder, true, false, false, kPer>,
          sum<Isa, Fp32, Fp32, AsIs, false, false, true, kPer>,
          sum<Isa, Partials, Unit, FromMemoryOrder, false, true, false, kPer>,
          sizeof(float) * kPer};
}

template <class Isa>
bool FloatSums<Isa>::find(DType dtype, RedOp op, Kernels* out) {
  if (op != RedOp::kSum && op != RedOp::kAvg && op != RedOp::kPremulSum) return false;
  switch (dtype) {
    case DType::kFloat16:
      *out = small_sums<Isa, Float16, true>();
      return true;
    case DType::kBFloat16:
      *out = small_sums<Isa, BFloat16, true>();
      return true;
    case DType::kFloat8E4M3FN:
      *out = small_sums<Isa, Float8E4M3FN, false>();
      return true;
    case DType::kFloat8E5M2:
      *out = small_sums<Isa, Float8E5M2, false>();
      return true;
    case DType::kFloat8E4M3FNUZ:
      *out = small_sums<Isa, Float8E4M3FNUZ, false>();
      return true;
    case DType::kFloat8E5M2FNUZ:
      *out = small_sums<Isa, Float8E5M2FNUZ, false>();
      return true;
    case DType::kFloat32:
      *out = wide_sums<Isa, float>();
      return true;
    case DType::kFloat64:
      *out = wide_sums<Isa, double>();
      return true;
    case DType::kComplex32:
      *out = small_sums<Isa, Float16, true, 2>();
      return true;
    case DType::kComplex64:
      *out = wide_sums<Isa, float, 2>();
      return true;
    case DType::kComplex128:
      *out = wide_sums<Isa, double, 2>();
      return true;
    default:
      return false;
  }
}

}  // namespace hfreduce
