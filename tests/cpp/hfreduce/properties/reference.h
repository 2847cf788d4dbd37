// SPDX-License-Identifier: Apache-2.0
//
// What a reduction should give: all inputs at once through the portable kernels, which
// reference_test.cc holds against plain loops. Elements are so small and whole that no order of
// additions, and no partial sum in the element's own type, can make a difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "hfreduce/collectives/premultiplied.h"
#include "hfreduce/reduce/kernels.h"
#include "hfreduce/types.h"

namespace hfreduce {

using Block = std::vector<std::byte>;

inline Kernels portable(DType dtype, RedOp op) {
  Kernels kernels;
  if (!find_kernels(dtype, op, Isa::kPortable, &kernels).ok()) return {};
  return kernels;
}

// Products of complex numbers are left out: the sign of a zero part depends on their order.
inline bool is_comparable(DType dtype, RedOp op) {
  Kernels kernels;
  if (op == RedOp::kProduct && name_of(dtype).starts_with("complex")) return false;
  return find_kernels(dtype, op, &kernels).ok();
}

template <typename T>
Block whole_numbers(std::size_t count, std::uint64_t below, std::mt19937_64& random) {
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(random() % below);
  Block block(count * sizeof(T));
  if (count > 0) std::memcpy(block.data(), values.data(), block.size());
  return block;
}

// Floating types get whole numbers from 0 to `below` - 1, the others any bits.
inline Block random_block(DType dtype, std::size_t count, std::uint64_t below,
                          std::mt19937_64& random) {
  if (dtype == DType::kBool) return whole_numbers<std::uint8_t>(count, 2, random);
  if (!is_floating(dtype)) {
    Block block(count * size_of(dtype));
    for (std::byte& byte : block) byte = static_cast<std::byte>(random());
    return block;
  }
  switch (dtype) {
    case DType::kFloat32:
      return whole_numbers<float>(count, below, random);
    case DType::kComplex64:
      return whole_numbers<float>(count * 2, below, random);
    case DType::kFloat64:
      return whole_numbers<double>(count, below, random);
    case DType::kComplex128:
      return whole_numbers<double>(count * 2, below, random);
    default:
      break;
  }
  const std::size_t parts = dtype == DType::kComplex32 ? 2 : 1;
  const Block wide = whole_numbers<float>(count * parts, below, random);
  Block block(count * size_of(dtype));
  const void* source = wide.data();
  if (count > 0) {
    portable(dtype, RedOp::kSum).acc_to_native(block.data(), nullptr, &source, 1, count, {});
  }
  return block;
}

// `factors` by rank, for PREMUL_SUM.
inline Block reduced(DType dtype, RedOp op, const std::vector<double>& factors,
                     const std::vector<Block>& inputs) {
  const std::size_t count = inputs[0].size() / size_of(dtype);
  const int ranks = static_cast<int>(inputs.size());
  Block result(inputs[0].size());
  if (count == 0) return result;
  const Kernels kernels = portable(dtype, op);
  std::vector<const void*> sources;
  if (op != RedOp::kPremulSum) {
    for (const Block& input : inputs) sources.push_back(input.data());
    const Scale scale{1.0, op == RedOp::kAvg ? 1.0 / ranks : 1.0};
    kernels.native_to_native(result.data(), nullptr, sources.data(), ranks, count, scale);
    return result;
  }
  std::vector<Block> wide;
  for (int rank = 0; rank < ranks; ++rank) {
    const void* source = inputs[rank].data();
    kernels.native_to_acc(wide.emplace_back(count * kernels.acc_size).data(), nullptr, &source, 1,
                          count, {factors[rank], 1.0});
  }
  for (const Block& block : wide) sources.push_back(block.data());
  Block sum(count * kernels.acc_size);
  portable(accumulator_of(dtype), RedOp::kSum)
      .native_to_native(sum.data(), nullptr, sources.data(), ranks, count, {});
  const void* source = sum.data();
  kernels.acc_to_native(result.data(), nullptr, &source, 1, count, {});
  return result;
}

}  // namespace hfreduce
