// SPDX-License-Identifier: Apache-2.0
//
// Units: how elements of one type are read into vectors, worked on, and written. A unit is what one
// step handles: kVecs vectors, kElements elements, kBytes bytes in memory.
#pragma once

#include "hfreduce/reduce/formats.h"

namespace hfreduce {

template <class V, int kVecs>
struct Unit {
  V v[kVecs];
};

// Elements that are worked on as they are: integers, and fp32 and fp64 where no arithmetic is done.
template <class Isa, class T, int kVecsOf = 1>
struct Raw {
  using V = Vec<Isa, T>;
  using Factor = T;
  static constexpr int kVecs = kVecsOf;
  static constexpr int kBytes = Isa::kBytes * kVecs;
  static constexpr bool kSplitsPairs = false;
  static constexpr int kLanes = Isa::kBytes / static_cast<int>(sizeof(T));
  static constexpr int kElements = kLanes * kVecs;
  using U = Unit<V, kVecs>;

  static HFREDUCE_INLINE U read(const char* from) {
    U u;
    for (int i = 0; i < kVecs; ++i) u.v[i] = load<T, kLanes>(from + i * Isa::kBytes);
    return u;
  }
  // What is stored, made once for any number of destinations.
  static HFREDUCE_INLINE U pack(const U& u) { return u; }
  static HFREDUCE_INLINE void write(const U& u, char* to) {
    for (int i = 0; i < kVecs; ++i) store<T, kLanes>(u.v[i], to + i * Isa::kBytes);
  }
};

// fp32 and fp64 results of arithmetic: every NaN is written in one form.
template <class Isa, class T, int kVecsOf = 1>
struct Arithmetic : Raw<Isa, T, kVecsOf> {
  using Base = Raw<Isa, T, kVecsOf>;
  using typename Base::U;
  using typename Base::V;

  static HFREDUCE_INLINE U pack(U u) {
    for (V& v : u.v) v = v != v ? V{} + static_cast<T>(__builtin_nan("")) : v;
    return u;
  }
};

// Formats of 16 and 8 bits, worked on as fp32. A 32-bit lane holds kVecs elements; each goes to a
// vector of its own by a shift and a mask, so no element changes its lane.
template <class Isa, class F>
struct Small {
  using V = Vec<Isa, float>;
  using VI = Vec<Isa, std::int32_t>;
  using Factor = float;
  static constexpr int kBits = 8 * static_cast<int>(sizeof(typename F::Word));
  static constexpr int kMask = (1 << kBits) - 1;
  static constexpr int kVecs = 32 / kBits;
  static constexpr int kLanes = Isa::kBytes / 4;
  static constexpr int kElements = kVecs * kLanes;
  static constexpr int kBytes = Isa::kBytes;
  static constexpr bool kSplitsPairs = true;  // real and imaginary parts come into two vectors
  using U = Unit<V, kVecs>;
  using Partials = Arithmetic<Isa, float, kVecs>;

  static HFREDUCE_INLINE U read(const char* from) {
    const VI words = load<std::int32_t, kLanes>(from);
    U u;
    for (int i = 0; i < kVecs; ++i) u.v[i] = decode<F, kLanes>((words >> (i * kBits)) & kMask);
    return u;
  }
  static HFREDUCE_INLINE VI pack(const U& u) {
    VI words = encode<F, kLanes>(u.v[0]);
    for (int i = 1; i < kVecs; ++i) words |= encode<F, kLanes>(u.v[i]) << (i * kBits);
    return words;
  }
  static HFREDUCE_INLINE void write(const VI& words, char* to) {
    store<std::int32_t, kLanes>(words, to);
  }
};

// False only when neither vector holds a NaN. Where the processor answers this at once, it saves
// the handling of NaNs; elsewhere it is not asked.
template <class Isa>
HFREDUCE_INLINE bool may_hold_nan(const Vec<Isa, float>&, const Vec<Isa, float>&) {
  return true;
}

// bf16 is the upper half of fp32.
template <class Isa>
struct BFloat16Pairs {
  using V = Vec<Isa, float>;
  using VU = Vec<Isa, std::uint32_t>;
  using Factor = float;
  static constexpr int kVecs = 2;
  static constexpr int kLanes = Isa::kBytes / 4;
  static constexpr int kElements = 2 * kLanes;
  static constexpr int kBytes = Isa::kBytes;
  static constexpr bool kSplitsPairs = true;
  using U = Unit<V, 2>;
  using Partials = Arithmetic<Isa, float, 2>;

  static HFREDUCE_INLINE U read(const char* from) {
    const VU pairs = load<std::uint32_t, kLanes>(from);
    return {{bits<V>(pairs << 16), bits<V>(pairs & 0xffff0000u)}};
  }
  static HFREDUCE_INLINE VU pack(const U& u) {
    VU even = round(u.v[0]), odd = round(u.v[1]);
    if (may_hold_nan<Isa>(u.v[0], u.v[1])) [[unlikely]] {
      even = u.v[0] != u.v[0] ? VU{} + kNan : even;
      odd = u.v[1] != u.v[1] ? VU{} + kNan : odd;
    }
    return (even >> 16) | (odd & 0xffff0000u);
  }
  static HFREDUCE_INLINE void write(const VU& pairs, char* to) {
    store<std::uint32_t, kLanes>(pairs, to);
  }

 private:
  static constexpr std::uint32_t kNan = BFloat16::kNan << 16;
  // The upper half is the result, unless this is a NaN.
  static HFREDUCE_INLINE VU round(const V& v) {
    const VU value = bits<VU>(v);
    return value + 0x7fffu + ((value >> 16) & 1);
  }
};

template <class Isa>
struct Small<Isa, BFloat16> : BFloat16Pairs<Isa> {};

// Between the order of elements in memory and that of Small: element i of a unit is element i /
// kVecs of vector i % kVecs.
struct Dealt {
  template <class V>
  static HFREDUCE_INLINE Unit<V, 1> to_memory(const Unit<V, 1>& u) {
    return u;
  }
  template <class V>
  static HFREDUCE_INLINE Unit<V, 1> from_memory(const Unit<V, 1>& u) {
    return u;
  }
  template <class V>
  static HFREDUCE_INLINE Unit<V, 2> to_memory(const Unit<V, 2>& u) {
    return {
        {shuffle<V, InterleaveLow>(u.v[0], u.v[1]), shuffle<V, InterleaveHigh>(u.v[0], u.v[1])}};
  }
  template <class V>
  static HFREDUCE_INLINE Unit<V, 2> from_memory(const Unit<V, 2>& u) {
    return {{shuffle<V, Evens>(u.v[0], u.v[1]), shuffle<V, Odds>(u.v[0], u.v[1])}};
  }
  // Four are dealt as two pairs: 0 and 2, 1 and 3.
  template <class V>
  static HFREDUCE_INLINE Unit<V, 4> to_memory(const Unit<V, 4>& u) {
    const Unit<V, 2> even = to_memory(Unit<V, 2>{{u.v[0], u.v[2]}});
    const Unit<V, 2> odd = to_memory(Unit<V, 2>{{u.v[1], u.v[3]}});
    const Unit<V, 2> low = to_memory(Unit<V, 2>{{even.v[0], odd.v[0]}});
    const Unit<V, 2> high = to_memory(Unit<V, 2>{{even.v[1], odd.v[1]}});
    return {{low.v[0], low.v[1], high.v[0], high.v[1]}};
  }
  template <class V>
  static HFREDUCE_INLINE Unit<V, 4> from_memory(const Unit<V, 4>& u) {
    const Unit<V, 2> low = from_memory(Unit<V, 2>{{u.v[0], u.v[1]}});
    const Unit<V, 2> high = from_memory(Unit<V, 2>{{u.v[2], u.v[3]}});
    const Unit<V, 2> even = from_memory(Unit<V, 2>{{low.v[0], high.v[0]}});
    const Unit<V, 2> odd = from_memory(Unit<V, 2>{{low.v[1], high.v[1]}});
    return {{even.v[0], odd.v[0], even.v[1], odd.v[1]}};
  }
};

}  // namespace hfreduce
