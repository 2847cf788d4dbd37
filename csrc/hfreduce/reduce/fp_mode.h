// SPDX-License-Identifier: Apache-2.0
//
// Results must not depend on the calling thread: torch.set_flush_denormal, for one, changes how the
// thread that calls it adds. The default mode holds while an FpMode lives.
#pragma once

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace hfreduce {

// `Isa` keeps the instances of differently compiled files apart.
template <class Isa>
class FpMode {
 public:
#ifdef __SSE2__
  __attribute__((always_inline)) FpMode() : saved_(_mm_getcsr()) {
    if ((saved_ & kModes) != kDefault) _mm_setcsr((saved_ & ~kModes) | kDefault);
  }
  __attribute__((always_inline)) ~FpMode() {
    if ((saved_ & kModes) != kDefault) _mm_setcsr(saved_);
  }

 private:
  // Flush to zero, rounding, exception masks, denormals are zero.
  static constexpr unsigned kModes = 0xffc0;
  static constexpr unsigned kDefault = 0x1f80;
  const unsigned saved_;
#elif defined(__aarch64__)
  __attribute__((always_inline)) FpMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    if ((saved_ & kModes) != 0) asm volatile("msr fpcr, %0" ::"r"(saved_ & ~kModes) : "memory");
  }
  __attribute__((always_inline)) ~FpMode() {
    if ((saved_ & kModes) != 0) asm volatile("msr fpcr, %0" ::"r"(saved_) : "memory");
  }

 private:
  // Default NaN, flush to zero, rounding.
  static constexpr unsigned long kModes = 0x3c80000;
  unsigned long saved_;
#else
  FpMode() {}
  ~FpMode() {}
#endif
};

}  // namespace hfreduce
