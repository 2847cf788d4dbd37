// SPDX-License-Identifier: Apache-2.0
//
// The loops: several sources into one or two destinations, a block of vectors at a time. All
// sources of a block are read before its destinations are written, so a destination may be a
// source. Cost: each source is read once and each destination written once; nothing goes through
// memory in between.
#pragma once

#include "hfreduce/reduce/fp_mode.h"
#include "hfreduce/reduce/units.h"

namespace hfreduce {

// What elements go through: In reads them, Op joins them, Out writes them. Finish turns the vectors
// of In into those of Out. With kBefore each input is multiplied by a factor, with kAfter the
// result.
template <class In_, class Op_, class Out_, class Finish_, bool kBefore_ = false,
          bool kAfter_ = false>
struct Pass {
  using In = In_;
  using Op = Op_;
  using Out = Out_;
  using Finish = Finish_;
  static constexpr bool kBefore = kBefore_;
  static constexpr bool kAfter = kAfter_;
  static_assert(In::kElements == Out::kElements);
  // Units of a block: four vectors of accumulators, enough to keep the processor busy.
  static constexpr int kUnits = In::kVecs < 4 ? 4 / In::kVecs : 1;
};

struct AsIs {
  template <class U>
  static HFREDUCE_INLINE const U& apply(const U& u) {
    return u;
  }
};

template <class T>
struct Factors {
  T before = 1;
  T after = 1;
};
template <class P>
using FactorsOf = Factors<typename P::In::Factor>;

template <class P>
HFREDUCE_INLINE typename P::In::U read(const char* from, const FactorsOf<P>& factors) {
  typename P::In::U u = P::In::read(from);
  if constexpr (P::kBefore) {
    for (auto& v : u.v) v *= factors.before;
  }
  return u;
}

template <class P>
HFREDUCE_INLINE auto pack(typename P::In::U u, const FactorsOf<P>& factors) {
  if constexpr (P::kAfter) {
    for (auto& v : u.v) v *= factors.after;
  }
  return P::Out::pack(P::Finish::apply(u));
}

HFREDUCE_INLINE const char* at(const void* base, std::size_t offset) {
  return static_cast<const char*>(base) + offset;
}
HFREDUCE_INLINE char* at(void* base, std::size_t offset) {
  return static_cast<char*>(base) + offset;
}

// One block of kUnits units, `in` bytes into the sources and `out` bytes into the destinations.
template <class P, int kUnits>
HFREDUCE_INLINE void block(void* dst, void* dst2, const void* const* src, int n, std::size_t in,
                           std::size_t out, const FactorsOf<P>& factors) {
  using In = typename P::In;
  using Out = typename P::Out;
  typename In::U into[kUnits];
  for (int u = 0; u < kUnits; ++u) into[u] = read<P>(at(src[0], in + u * In::kBytes), factors);
  for (int k = 1; k < n; ++k) {
    for (int u = 0; u < kUnits; ++u) {
      P::Op::template join<In>(&into[u], read<P>(at(src[k], in + u * In::kBytes), factors));
    }
  }
  decltype(pack<P>(into[0], factors)) packed[kUnits];
  for (int u = 0; u < kUnits; ++u) packed[u] = pack<P>(into[u], factors);
  for (int u = 0; u < kUnits; ++u) Out::write(packed[u], at(dst, out + u * Out::kBytes));
  if (dst2 == nullptr) return;
  for (int u = 0; u < kUnits; ++u) Out::write(packed[u], at(dst2, out + u * Out::kBytes));
}

// The last elements, fewer than a unit, by way of a buffer: the same instructions on them.
template <class P>
HFREDUCE_SHARED void tail(void* dst, void* dst2, const void* const* src, int n, std::size_t left,
                          std::size_t in, std::size_t out, const FactorsOf<P>& factors) {
  using In = typename P::In;
  using Out = typename P::Out;
  const std::size_t in_size = left * In::kBytes / In::kElements;
  const std::size_t out_size = left * Out::kBytes / Out::kElements;
  char from[In::kBytes] = {};
  std::memcpy(from, at(src[0], in), in_size);
  typename In::U into = read<P>(from, factors);
  for (int k = 1; k < n; ++k) {
    std::memcpy(from, at(src[k], in), in_size);
    P::Op::template join<In>(&into, read<P>(from, factors));
  }
  char to[Out::kBytes];
  Out::write(pack<P>(into, factors), to);
  std::memcpy(at(dst, out), to, out_size);
  if (dst2 != nullptr) std::memcpy(at(dst2, out), to, out_size);
}

// kN sources, or n when kN is 0.
template <class P, int kN>
HFREDUCE_SHARED void run(void* dst, void* dst2, const void* const* src, int n, std::size_t count,
                         const FactorsOf<P>& factors) {
  using In = typename P::In;
  using Out = typename P::Out;
  const void* fixed[kN > 0 ? kN : 1];
  if constexpr (kN > 0) {
    for (int k = 0; k < kN; ++k) fixed[k] = src[k];
    src = fixed;
    n = kN;
  }
  std::size_t units = count / In::kElements;
  std::size_t in = 0, out = 0;
  for (; units >= P::kUnits; units -= P::kUnits) {
    block<P, P::kUnits>(dst, dst2, src, n, in, out, factors);
    in += P::kUnits * In::kBytes;
    out += P::kUnits * Out::kBytes;
  }
  for (; units > 0; --units) {
    block<P, 1>(dst, dst2, src, n, in, out, factors);
    in += In::kBytes;
    out += Out::kBytes;
  }
  const std::size_t left = count % In::kElements;
  if (left > 0) tail<P>(dst, dst2, src, n, left, in, out, factors);
}

}  // namespace hfreduce
