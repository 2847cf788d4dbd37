// SPDX-License-Identifier: Apache-2.0
//
// Vectors of one width per instruction set, in the vector extensions that g++ and clang share, so
// that the kernels are written once. A file compiled for an instruction set instantiates the
// templates with that set's tag only: no two files share a symbol, and code for one processor is
// never reached on another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#define HFREDUCE_INLINE inline __attribute__((always_inline))
#define HFREDUCE_SHARED __attribute__((noinline))

namespace hfreduce {

struct Portable {
  static constexpr int kBytes = 16;
};
struct Avx2 {
  static constexpr int kBytes = 32;
};
struct Avx512 {
  static constexpr int kBytes = 64;
};
struct Avx512Fp16 {  // AVX-512 with arithmetic in fp16
  static constexpr int kBytes = 64;
};

template <class T, int kLanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * kLanes)));
  // In memory: anywhere, whatever type the memory has.
  typedef T memory __attribute__((vector_size(sizeof(T) * kLanes), aligned(1), may_alias));
};
// `kLanes` elements of T.
template <class T, int kLanes>
using Lanes = typename VectorOf<T, kLanes>::type;
// A full vector of T.
template <class Isa, class T>
using Vec = Lanes<T, Isa::kBytes / static_cast<int>(sizeof(T))>;

template <class T, int kLanes>
HFREDUCE_INLINE Lanes<T, kLanes> load(const char* from) {
  return *reinterpret_cast<const typename VectorOf<T, kLanes>::memory*>(from);
}

template <class T, int kLanes>
HFREDUCE_INLINE void store(const Lanes<T, kLanes>& v, char* to) {
  *reinterpret_cast<typename VectorOf<T, kLanes>::memory*>(to) = v;
}

// The same bits as another type of the same size.
template <class To, class From>
HFREDUCE_INLINE constexpr To bits(const From& from) {
  return __builtin_bit_cast(To, from);
}

// Element by element: the value converted to another type.
template <class To, class From>
HFREDUCE_INLINE To convert(const From& from) {
  return __builtin_convertvector(from, To);
}

template <class V, int... kI>
HFREDUCE_INLINE V shuffle(const V& a, const V& b, std::integer_sequence<int, kI...>) {
  return __builtin_shufflevector(a, b, kI...);
}

// Sequences for shuffle(): those of a two-vector shuffle count b's lanes from kLanes on.
template <int kLanes, class Map, class Seq = std::make_integer_sequence<int, kLanes>>
struct IndexMap;
template <int kLanes, class Map, int... kI>
struct IndexMap<kLanes, Map, std::integer_sequence<int, kI...>> {
  using type = std::integer_sequence<int, Map::at(kI, kLanes)...>;
};
template <class V, class Map>
HFREDUCE_INLINE V shuffle(const V& a, const V& b) {
  constexpr int kLanes = sizeof(V) / sizeof(a[0]);
  return shuffle(a, b, typename IndexMap<kLanes, Map>::type());
}

// a0 b0 a1 b1 ... : the lower and the upper half.
struct InterleaveLow {
  static constexpr int at(int i, int lanes) { return i / 2 + (i % 2) * lanes; }
};
struct InterleaveHigh {
  static constexpr int at(int i, int lanes) { return lanes / 2 + i / 2 + (i % 2) * lanes; }
};
// x0 x(n/2) x1 x(n/2 + 1) ... of one vector.
struct InterleaveHalves {
  static constexpr int at(int i, int lanes) { return i / 2 + (i % 2) * (lanes / 2); }
};
// Even and odd elements of a followed by those of b.
struct Evens {
  static constexpr int at(int i, int) { return 2 * i; }
};
struct Odds {
  static constexpr int at(int i, int) { return 2 * i + 1; }
};
// x0 x0 x2 x2 ..., x1 x1 x3 x3 ..., x1 x0 x3 x2 ...: parts of complex numbers.
struct RepeatEvens {
  static constexpr int at(int i, int) { return i - i % 2; }
};
struct RepeatOdds {
  static constexpr int at(int i, int) { return i - i % 2 + 1; }
};
// a0 b1 a2 b3 ...
struct AlternateSides {
  static constexpr int at(int i, int lanes) { return i + (i % 2) * lanes; }
};
struct SwapPairs {
  static constexpr int at(int i, int) { return i % 2 == 0 ? i + 1 : i - 1; }
};

}  // namespace hfreduce
