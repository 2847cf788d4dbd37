// SPDX-License-Identifier: Apache-2.0
//
// Floating formats of 16 and 8 bits, and their conversion to and from fp32 in integer arithmetic:
// round to nearest, ties to even, the special values as torch has them. A NaN has one form in each
// format, as it has in every result of an addition or multiplication here, so that bits never
// depend on which of two NaNs a processor prefers.
#pragma once

#include "hfreduce/reduce/vector.h"

namespace hfreduce {

inline constexpr int kFloatSign = static_cast<int>(0x80000000u);
inline constexpr int kFloatMagnitude = 0x7fffffff;
inline constexpr int kFloatInfinity = 0x7f800000;
inline constexpr int kFloatNan = 0x7fc00000;

struct Float16 {
  using Word = std::uint16_t;
  using Signed = std::int16_t;
  static constexpr int kMantissa = 10;
  static constexpr int kBias = 15;
  static constexpr int kSign = 0x8000;
  static constexpr int kMax = 0x7bff;       // the largest finite value
  static constexpr int kLargest = 0x7c00;   // the largest magnitude that is a number
  static constexpr int kOverflow = 0x7c00;  // what lies beyond becomes (the sign apart)
  static constexpr int kNan = 0x7e00;
  static constexpr bool kHasInfinity = true;
  static constexpr bool kHasMinusZero = true;
};
struct BFloat16 {
  using Word = std::uint16_t;
  using Signed = std::int16_t;
  static constexpr int kSign = 0x8000;
  static constexpr int kLargest = 0x7f80;
  static constexpr int kNan = 0x7fc0;
  static constexpr bool kHasInfinity = true;
  static constexpr bool kHasMinusZero = true;
};
struct Float8E4M3FN {
  using Word = std::uint8_t;
  using Signed = std::int8_t;
  static constexpr int kMantissa = 3;
  static constexpr int kBias = 7;
  static constexpr int kSign = 0x80;
  static constexpr int kMax = 0x7e;
  static constexpr int kLargest = 0x7e;
  static constexpr int kOverflow = 0x7e;  // torch saturates here, infinity included
  static constexpr int kNan = 0x7f;
  static constexpr bool kHasInfinity = false;
  static constexpr bool kHasMinusZero = true;
};
struct Float8E5M2 {
  using Word = std::uint8_t;
  using Signed = std::int8_t;
  static constexpr int kMantissa = 2;
  static constexpr int kBias = 15;
  static constexpr int kSign = 0x80;
  static constexpr int kMax = 0x7b;
  static constexpr int kLargest = 0x7c;
  static constexpr int kOverflow = 0x7c;
  static constexpr int kNan = 0x7f;
  static constexpr bool kHasInfinity = true;
  static constexpr bool kHasMinusZero = true;
};
// The fnuz formats have no infinity and no -0: its bits are the one NaN.
struct Float8E4M3FNUZ {
  using Word = std::uint8_t;
  using Signed = std::int8_t;
  static constexpr int kMantissa = 3;
  static constexpr int kBias = 8;
  static constexpr int kSign = 0x80;
  static constexpr int kMax = 0x7f;
  static constexpr int kOverflow = 0x80;
  static constexpr int kNan = 0x80;
  static constexpr bool kHasInfinity = false;
  static constexpr bool kHasMinusZero = false;
};
struct Float8E5M2FNUZ {
  using Word = std::uint8_t;
  using Signed = std::int8_t;
  static constexpr int kMantissa = 2;
  static constexpr int kBias = 16;
  static constexpr int kSign = 0x80;
  static constexpr int kMax = 0x7f;
  static constexpr int kOverflow = 0x80;
  static constexpr int kNan = 0x80;
  static constexpr bool kHasInfinity = false;
  static constexpr bool kHasMinusZero = false;
};

// fp32 from the bits of format F, one element in each 32-bit lane. Exact. Lanes are signed, since
// older instruction sets compare and convert only these.
template <class F, int kLanes>
HFREDUCE_INLINE Lanes<float, kLanes> decode(const Lanes<std::int32_t, kLanes>& word) {
  using VI = Lanes<std::int32_t, kLanes>;
  using VF = Lanes<float, kLanes>;
  constexpr int kShift = 23 - F::kMantissa;
  constexpr int kLeastNormal = 1 << F::kMantissa;
  constexpr float kDenormalUnit = bits<float>((128 - F::kBias - F::kMantissa) << 23);
  const VI magnitude = word & (F::kSign - 1);
  const VI sign = (word << (F::kSign == 0x8000 ? 16 : 24)) & kFloatSign;
  // A denormal is its mantissa times the unit: no fp32 denormal arises, which would be slow.
  const VI denormal = bits<VI>(convert<VF>(magnitude) * kDenormalUnit);
  const VI normal = (magnitude << kShift) + ((127 - F::kBias) << 23);
  const VI finite = (magnitude < kLeastNormal ? denormal : normal) | sign;
  if constexpr (F::kHasInfinity) {
    return bits<VF>(magnitude > F::kMax ? (magnitude << kShift) | sign | kFloatInfinity : finite);
  } else if constexpr (F::kHasMinusZero) {
    return bits<VF>(magnitude > F::kMax ? VI{} + kFloatNan : finite);
  } else {
    return bits<VF>(word == F::kNan ? VI{} + kFloatNan : finite);
  }
}

// The bits of format F nearest to fp32, one element in each 32-bit lane.
template <class F, int kLanes>
HFREDUCE_INLINE Lanes<std::int32_t, kLanes> encode(const Lanes<float, kLanes>& from) {
  using VI = Lanes<std::int32_t, kLanes>;
  using VU = Lanes<std::uint32_t, kLanes>;
  using VF = Lanes<float, kLanes>;
  constexpr int kShift = 23 - F::kMantissa;
  constexpr int kLeastNormal = (128 - F::kBias) << 23;
  // Added to a denormal, this leaves it in the lowest bits of the sum, rounded.
  constexpr int kMagic = (128 - F::kBias - F::kMantissa + 23) << 23;
  const VI value = bits<VI>(from);
  const VI magnitude = value & kFloatMagnitude;
  const VI denormal = bits<VI>(bits<VF>(magnitude) + bits<float>(kMagic)) - kMagic;
  constexpr int kRebias = (127 - F::kBias) << 23;
  constexpr int kAlmostHalf = (1 << (kShift - 1)) - 1;
  const VI odd = (magnitude >> kShift) & 1;
  // Unsigned, since the compiler may add these in another order, in which a NaN's bits overflow.
  const VU rounded = bits<VU>(magnitude) - kRebias + kAlmostHalf + bits<VU>(odd);
  const VI normal = bits<VI>(rounded) >> kShift;
  const VI code = magnitude < kLeastNormal ? denormal : normal;
  const VI sign = (value >> (F::kSign == 0x8000 ? 16 : 24)) & F::kSign;
  if constexpr (F::kHasMinusZero) {
    const VI clamped = code > F::kMax ? VI{} + F::kOverflow : code;
    return magnitude > kFloatInfinity ? VI{} + F::kNan : clamped | sign;
  } else {
    const VI with_sign = code == 0 ? code : code | sign;
    return code > F::kMax ? VI{} + F::kNan : with_sign;  // overflow and NaN alike
  }
}

}  // namespace hfreduce
