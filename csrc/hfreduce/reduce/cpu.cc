// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/reduce/cpu.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace hfreduce {
namespace {

#ifdef __x86_64__
// What the files of each instruction set are compiled for (csrc/CMakeLists.txt). Two bits are read
// by hand, since clang 14 does not know them by name.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
// The system saves for it what it saves for AVX-512.
bool has_avx512fp16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx512() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & (1u << 23)) != 0;
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_avx512fp16() { return false; }
#endif

}  // namespace

// Asked once: under a hypervisor every cpuid is a trap of some microseconds.
bool cpu_runs(Isa isa) {
  static const bool avx2 = has_avx2();
  static const bool avx512 = has_avx512();
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
  }
  return false;
}

bool cpu_adds_fp16() {
  static const bool adds = has_avx512fp16();
  return adds;
}

}  // namespace hfreduce
