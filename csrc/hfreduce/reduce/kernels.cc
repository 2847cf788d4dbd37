// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/reduce/kernels.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/log.h"
#include "hfreduce/reduce/cpu.h"
#include "hfreduce/reduce/families.h"

namespace hfreduce {

ReduceFn float16_sum_avx512fp16();
ReduceFn complex32_sum_avx512fp16();

namespace {

Isa detect_isa() {
  Isa best = Isa::kPortable;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (cpu_runs(isa)) best = isa;
  }
  const char* wanted = std::getenv("HFREDUCE_ISA");
  if (wanted == nullptr || *wanted == '\0') return best;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (std::string_view(wanted) != name_of(isa)) continue;
    if (isa <= best) return isa;
    ff::log(ff::LogLevel::kWarn, "HFREDUCE_ISA={}: this processor runs {} at best", wanted,
            name_of(best));
    return best;
  }
  ff::log(ff::LogLevel::kWarn, "HFREDUCE_ISA={} is none of portable, avx2, avx512; using {}",
          wanted, name_of(best));
  return best;
}

bool find_compiled(DType dtype, RedOp op, Isa isa, Kernels* out) {
#ifdef __x86_64__
  if (isa == Isa::kAvx2) return find_in_families<Avx2>(dtype, op, out);
  if (isa == Isa::kAvx512) {
    if (!find_in_families<Avx512>(dtype, op, out)) return false;
    const bool is_sum = op == RedOp::kSum || op == RedOp::kAvg || op == RedOp::kPremulSum;
    if (is_sum && cpu_adds_fp16()) {
      if (dtype == DType::kFloat16) out->native_to_native = float16_sum_avx512fp16();
      if (dtype == DType::kComplex32) out->native_to_native = complex32_sum_avx512fp16();
    }
    return true;
  }
#endif
  return isa == Isa::kPortable && find_in_families<Portable>(dtype, op, out);
}

bool is_complex(DType dtype) {
  return dtype == DType::kComplex32 || dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

// What to do instead of a reduction that has no meaning.
std::string_view cure_for(DType dtype, RedOp op) {
  switch (op) {
    case RedOp::kAvg:
      return "use sum and divide the result, or convert to a floating type first";
    case RedOp::kPremulSum:
      return "multiply the input and use sum, or convert to a floating type first";
    case RedOp::kMin:
    case RedOp::kMax:
      return "complex numbers have no order: reduce their real and imaginary parts, or magnitudes";
    default:
      return is_complex(dtype) ? "view the buffer as integers, two for each number"
                               : "view the buffer as integers of the same size";
  }
}

}  // namespace

Isa best_isa() {
  static const Isa isa = detect_isa();
  return isa;
}

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

ff::Status find_kernels(DType dtype, RedOp op, Kernels* out) {
  return find_kernels(dtype, op, best_isa(), out);
}

ff::Status find_kernels(DType dtype, RedOp op, Isa isa, Kernels* out) {
  if (!cpu_runs(isa)) {
    return ff::Status(ff::Code::kUnsupported, std::string("this processor does not run ") +
                                                  name_of(isa) + "; it runs " +
                                                  name_of(best_isa()));
  }
  if (find_compiled(dtype, op, isa, out)) return {};
  return ff::Status(ff::Code::kUnsupported,
                    std::string(name_of(op)) + " is not defined for " +
                        std::string(name_of(dtype)) + ": " + std::string(cure_for(dtype, op)),
                    {{"dtype", std::string(name_of(dtype))}, {"op", std::string(name_of(op))}});
}

}  // namespace hfreduce
