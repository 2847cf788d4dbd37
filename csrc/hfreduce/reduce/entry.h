// SPDX-License-Identifier: Apache-2.0
//
// Kernels in the form that callers know (ReduceFn), made of passes.
#pragma once

#include <type_traits>

#include "hfreduce/reduce/families.h"
#include "hfreduce/reduce/loops.h"

namespace hfreduce {

// A pass without factors. An element of the caller's type is kPer elements of the pass: a complex
// number two of its parts, an integer several bytes.
template <class Isa, class P, int kPer = 1>
void plain(void* dst, void* dst2, const void* const* src, int n, std::size_t count, const Scale&) {
  if constexpr (std::is_floating_point_v<typename P::In::Factor>) {
    const FpMode<Isa> mode;
    run<P, 0>(dst, dst2, src, n, count * kPer, {});
  } else {
    run<P, 0>(dst, dst2, src, n, count * kPer, {});
  }
}

// Kernels whose accumulators are the elements themselves, without factors.
template <class Isa, class P, int kPer = 1>
Kernels same_kernels(std::size_t element_size) {
  constexpr ReduceFn fn = plain<Isa, P, kPer>;
  return {fn, fn, fn, fn, element_size};
}

// What a pass does between joining elements as In has them and writing them as Out does.
struct ToMemoryOrder {
  template <class U>
  static HFREDUCE_INLINE U apply(const U& u) {
    return Dealt::to_memory(u);
  }
};
struct FromMemoryOrder {
  template <class U>
  static HFREDUCE_INLINE U apply(const U& u) {
    return Dealt::from_memory(u);
  }
};

}  // namespace hfreduce
