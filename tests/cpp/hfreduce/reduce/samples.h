// SPDX-License-Identifier: Apache-2.0
//
// What the kernel tests share: the supported combinations, and elements with many special values.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hfreduce/reduce/kernels.h"

namespace hfreduce {

using Bytes = std::vector<unsigned char>;

inline std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    Kernels kernels;
    if (find_kernels(DType::kFloat32, RedOp::kSum, isa, &kernels).ok()) isas.push_back(isa);
  }
  return isas;
}

inline std::vector<DType> all_dtypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i < kDTypeCount; ++i) dtypes.push_back(static_cast<DType>(i));
  return dtypes;
}

inline std::vector<RedOp> all_ops() {
  std::vector<RedOp> ops;
  for (int i = 0; i < kRedOpCount; ++i) ops.push_back(static_cast<RedOp>(i));
  return ops;
}

// The type of one component, and its size: complex numbers have two.
inline DType component_of(DType dtype) {
  switch (dtype) {
    case DType::kComplex32:
      return DType::kFloat16;
    case DType::kComplex64:
      return DType::kFloat32;
    case DType::kComplex128:
      return DType::kFloat64;
    default:
      return dtype;
  }
}

// `count` elements: random bits, with small numbers, zeros of both signs, denormals, infinities,
// NaNs of either sign and any payload, and extremes among them, each often enough to meet the
// others.
inline Bytes sample(DType dtype, std::size_t count, std::mt19937_64* random) {
  Bytes bytes(count * size_of(dtype));
  const DType component = component_of(dtype);
  const std::size_t size = size_of(component);
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    std::uint64_t value = (*random)();
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - 8 * size);
    const std::uint64_t sign = std::uint64_t{1} << (8 * size - 1);
    const std::uint64_t exponent_unit = component == DType::kFloat64   ? std::uint64_t{1} << 52
                                        : component == DType::kFloat32 ? std::uint64_t{1} << 23
                                        : component == DType::kFloat16 ? std::uint64_t{1} << 10
                                        : component == DType::kBFloat16
                                            ? std::uint64_t{1} << 7
                                            : std::uint64_t{1} << (4 * size - 1);
    switch ((*random)() % 12) {
      case 0:  // zero
        value &= sign;
        break;
      case 1:  // denormal
        value &= sign | (exponent_unit - 1);
        break;
      case 2:  // infinity, or the greatest exponent
        value = (value & sign) | ((sign - 1) & ~(exponent_unit - 1));
        break;
      case 3:  // NaN
        value |= (sign - 1) & ~(exponent_unit - 1);
        break;
      case 4:  // the greatest finite number, or nearly
        value = (value & sign) | (((sign - 1) & ~(exponent_unit - 1)) - 1 - value % 3);
        break;
      case 5:  // all ones
        value = all;
        break;
      case 6:
      case 7:
      case 8:  // an exponent near the middle: sums that round
        value = (value & (sign | (exponent_unit - 1))) |
                ((sign >> 1) - exponent_unit + ((*random)() % 3) * exponent_unit);
        break;
      default:
        break;
    }
    if (dtype == DType::kBool) value &= 1;
    value &= all;
    std::memcpy(bytes.data() + at, &value, size);
  }
  return bytes;
}

}  // namespace hfreduce
