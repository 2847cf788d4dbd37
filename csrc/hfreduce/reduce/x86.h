// SPDX-License-Identifier: Apache-2.0
//
// What the files compiled for AVX2 and AVX-512 do by intrinsics. Conversions of fp16 agree with
// those of formats.h: exact one way, to nearest even the other, NaNs brought to one form.
#pragma once

#include <immintrin.h>

#include "hfreduce/reduce/units.h"

namespace hfreduce {

template <class Isa>
struct HardwareFloat16 {
  using V = Vec<Isa, float>;
  using Factor = float;
  static constexpr int kVecs = 1;
  static constexpr int kElements = Isa::kBytes / 4;
  static constexpr int kBytes = Isa::kBytes / 2;
  static constexpr bool kSplitsPairs = false;
  using U = Unit<V, 1>;
  using Partials = Arithmetic<Isa, float>;
  using Words = Lanes<long long, kBytes / 8>;

  static HFREDUCE_INLINE void write(const Words& words, char* to) {
    store<long long, kBytes / 8>(words, to);
  }
  static HFREDUCE_INLINE V one_nan(const V& v) { return v != v ? V{} + __builtin_nanf("") : v; }
};

#ifdef __AVX2__
template <>
struct Small<Avx2, Float16> : HardwareFloat16<Avx2> {
  static HFREDUCE_INLINE U read(const char* from) {
    return {{_mm256_cvtph_ps(load<long long, 2>(from))}};
  }
  static HFREDUCE_INLINE Words pack(const U& u) {
    return _mm256_cvtps_ph(one_nan(u.v[0]), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

template <>
HFREDUCE_INLINE bool may_hold_nan<Avx2>(const Vec<Avx2, float>& a, const Vec<Avx2, float>& b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;
}
#endif

#ifdef __AVX512F__
template <>
struct Small<Avx512, Float16> : HardwareFloat16<Avx512> {
  // The masked forms, since g++ 12 takes the plain ones for a use of uninitialised memory.
  static constexpr __mmask16 kAll = 0xffff;
  static HFREDUCE_INLINE U read(const char* from) {
    return {{_mm512_maskz_cvtph_ps(kAll, load<long long, 4>(from))}};
  }
  static HFREDUCE_INLINE Words pack(const U& u) {
    return _mm512_maskz_cvtps_ph(kAll, one_nan(u.v[0]),
                                 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

// Rounding on words, which takes a third less than on the halves of lanes: the upper halves of the
// odd elements beside those of the even ones, and the lower halves likewise; then one more where
// the lower half is above the middle, or at it and the upper half is odd.
template <>
struct Small<Avx512, BFloat16> : BFloat16Pairs<Avx512> {
  static HFREDUCE_INLINE VU pack(const U& u) {
    if (_mm512_cmp_ps_mask(u.v[0], u.v[1], _CMP_UNORD_Q) != 0) [[unlikely]] {
      return BFloat16Pairs::pack(u);
    }
    constexpr int kChoose = 0xca;    // a ? b : c
    constexpr int kNotAndOr = 0xae;  // (~a & b) | c
    const VU even = bits<VU>(u.v[0]), odd = bits<VU>(u.v[1]);
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    const __m512i one = _mm512_set1_epi16(1);
    const __m512i upper =
        _mm512_ternarylogic_epi32(mask, bits<__m512i>(odd), bits<__m512i>(even >> 16), kChoose);
    const __m512i lower =
        _mm512_ternarylogic_epi32(mask, bits<__m512i>(odd << 16), bits<__m512i>(even), kChoose);
    const __m512i least =
        _mm512_ternarylogic_epi32(upper, one, _mm512_set1_epi16(-0x8000), kNotAndOr);
    const __mmask32 up = _mm512_cmpge_epu16_mask(lower, least);
    return bits<VU>(_mm512_mask_add_epi16(upper, up, upper, one));
  }
};
#endif

}  // namespace hfreduce
