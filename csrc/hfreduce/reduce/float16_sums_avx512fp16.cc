// SPDX-License-Identifier: Apache-2.0
//
// The sum of two fp16 arrays where the processor adds fp16. A single such addition gives the same
// bits as one in fp32 rounded to fp16: fp32 has more than twice as many digits and two to spare.
// All other sums of fp16 need the digits of fp32.
#include <immintrin.h>

#include "hfreduce/reduce/float_sums.h"

namespace hfreduce {
namespace {

struct Fp16 : Raw<Avx512Fp16, std::uint16_t> {
  static HFREDUCE_INLINE U pack(const U& u) {
    const __m512h sum = bits<__m512h>(u.v[0]);
    const __mmask32 nan = _mm512_cmp_ph_mask(sum, sum, _CMP_UNORD_Q);
    return {{bits<V>(_mm512_mask_set1_epi16(bits<__m512i>(sum), nan, Float16::kNan))}};
  }
};

struct AddFp16 : EachVector<AddFp16> {
  template <class V>
  static HFREDUCE_INLINE V apply(const V& a, const V& x) {
    return bits<V>(_mm512_add_ph(bits<__m512h>(a), bits<__m512h>(x)));
  }
};

template <int kPer>
void sum(void* dst, void* dst2, const void* const* src, int n, std::size_t count,
         const Scale& scale) {
  if (n == 2 && scale.before == 1.0 && scale.after == 1.0) {
    const FpMode<Avx512Fp16> mode;
    return run<Pass<Fp16, AddFp16, Fp16, AsIs>, 2>(dst, dst2, src, n, count * kPer, {});
  }
  constexpr DType kDType = kPer == 1 ? DType::kFloat16 : DType::kComplex32;
  static const ReduceFn general = [] {
    Kernels kernels;
    FloatSums<Avx512>::find(kDType, RedOp::kSum, &kernels);
    return kernels.native_to_native;
  }();
  general(dst, dst2, src, n, count, scale);
}

}  // namespace

ReduceFn float16_sum_avx512fp16() { return sum<1>; }
ReduceFn complex32_sum_avx512fp16() { return sum<2>; }

}  // namespace hfreduce
