// SPDX-License-Identifier: Apache-2.0
//
// The operations: `a` so far, joined by the next source's `x`.
#pragma once

#include "hfreduce/reduce/units.h"

namespace hfreduce {

// Operations on vectors, one at a time.
template <class Op>
struct EachVector {
  template <class Elements>
  static HFREDUCE_INLINE void join(typename Elements::U* a, const typename Elements::U& x) {
    for (int i = 0; i < Elements::kVecs; ++i) a->v[i] = Op::apply(a->v[i], x.v[i]);
  }
};

struct Add : EachVector<Add> {
  template <class V>
  static HFREDUCE_INLINE V apply(const V& a, const V& x) {
    return a + x;
  }
};

struct Multiply : EachVector<Multiply> {
  template <class V>
  static HFREDUCE_INLINE V apply(const V& a, const V& x) {
    return a * x;
  }
};

// Pairs of real and imaginary part, side by side or in two vectors. Both ways calculate the same.
struct ComplexMultiply {
  template <class Elements>
  static HFREDUCE_INLINE void join(typename Elements::U* a, const typename Elements::U& x) {
    if constexpr (Elements::kSplitsPairs) {
      const auto real = a->v[0] * x.v[0] - a->v[1] * x.v[1];
      a->v[1] = a->v[0] * x.v[1] + a->v[1] * x.v[0];
      a->v[0] = real;
    } else {
      for (int i = 0; i < Elements::kVecs; ++i) a->v[i] = apply(a->v[i], x.v[i]);
    }
  }

 private:
  template <class V>
  static HFREDUCE_INLINE V apply(const V& a, const V& x) {
    const V by_real = shuffle<V, RepeatEvens>(a, a) * x;
    const V by_imaginary = shuffle<V, RepeatOdds>(a, a) * shuffle<V, SwapPairs>(x, x);
    return shuffle<V, AlternateSides>(by_real - by_imaginary, by_real + by_imaginary);
  }
};

struct And : EachVector<And> {
  template <class V>
  static HFREDUCE_INLINE V apply(const V& a, const V& x) {
    return a & x;
  }
};

struct Or : EachVector<Or> {
  template <class V>
  static HFREDUCE_INLINE V apply(const V& a, const V& x) {
    return a | x;
  }
};

struct Xor : EachVector<Xor> {
  template <class V>
  static HFREDUCE_INLINE V apply(const V& a, const V& x) {
    return a ^ x;
  }
};

// For integers, and for fp32 and fp64: the last NaN stays; of equals, such as the two zeros, the
// first does.
struct Min : EachVector<Min> {
  template <class V>
  static HFREDUCE_INLINE V apply(const V& a, const V& x) {
    const V least = x < a ? x : a;
    return x != x ? x : least;
  }
};

struct Max : EachVector<Max> {
  template <class V>
  static HFREDUCE_INLINE V apply(const V& a, const V& x) {
    const V greatest = x > a ? x : a;
    return x != x ? x : greatest;
  }
};

// The same for elements of a 16-bit or 8-bit format F, given as signed integers: sign and magnitude
// compare as integers do.
template <class F, bool kGreater>
struct SmallExtreme : EachVector<SmallExtreme<F, kGreater>> {
  template <class V>
  static HFREDUCE_INLINE V apply(const V& a, const V& x) {
    const V key_a = key(a), key_x = key(x);
    const auto better = kGreater ? key_x > key_a : key_x < key_a;
    return (better & ~is_nan(a)) | is_nan(x) ? x : a;
  }

 private:
  template <class V>
  static HFREDUCE_INLINE V magnitude(const V& v) {
    return v & (V{} + static_cast<typename F::Signed>(F::kSign - 1));
  }
  template <class V>
  static HFREDUCE_INLINE V key(const V& v) {
    return v < 0 ? -magnitude(v) : magnitude(v);
  }
  template <class V>
  static HFREDUCE_INLINE auto is_nan(const V& v) {
    if constexpr (F::kHasMinusZero) {
      return magnitude(v) > static_cast<typename F::Signed>(F::kLargest);
    } else {
      return v == V{} + static_cast<typename F::Signed>(F::kNan);
    }
  }
};

}  // namespace hfreduce
