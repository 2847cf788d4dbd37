// SPDX-License-Identifier: Apache-2.0
//
// Public types of libhfreduce: element types, reductions and their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hfreduce {

// Element types. The values travel on the wire: append only.
enum class DType : std::uint8_t {
  kBool = 0,  // one byte, 0 or 1
  kUInt8 = 1,
  kInt8 = 2,
  kUInt16 = 3,
  kInt16 = 4,
  kUInt32 = 5,
  kInt32 = 6,
  kUInt64 = 7,
  kInt64 = 8,
  kFloat16 = 9,
  kBFloat16 = 10,
  kFloat8E4M3FN = 11,
  kFloat8E5M2 = 12,
  kFloat8E4M3FNUZ = 13,
  kFloat8E5M2FNUZ = 14,
  kFloat32 = 15,
  kFloat64 = 16,
  kComplex32 = 17,   // two fp16
  kComplex64 = 18,   // two fp32
  kComplex128 = 19,  // two fp64
};
inline constexpr int kDTypeCount = 20;

// Reductions. The values travel on the wire: append only.
//   kAvg      sum, then divided by the number of ranks (floating and complex types only)
//   kPremulSum  every input is multiplied by a factor first (floating and complex types only)
// MIN and MAX return NaN when any input is NaN, as torch.minimum and torch.maximum do.
enum class RedOp : std::uint8_t {
  kSum = 0,
  kAvg = 1,
  kProduct = 2,
  kMin = 3,
  kMax = 4,
  kBand = 5,
  kBor = 6,
  kBxor = 7,
  kPremulSum = 8,
};
inline constexpr int kRedOpCount = 9;

struct Reduction {
  RedOp op = RedOp::kSum;
  double factor = 1.0;  // kPremulSum only; may differ from rank to rank
};

// What a rank asks for, as errors and logs name it. The values travel on the wire: append only.
enum class OpKind : std::uint8_t {
  kNone = 0,
  kAllreduce = 1,
  kReduce = 2,
  kBroadcast = 3,
  kAllgather = 4,
  kReduceScatter = 5,
  kAlltoall = 6,
  kGather = 7,
  kScatter = 8,
  kBarrier = 9,
  kSend = 10,
  kRecv = 11,
};

std::size_t size_of(DType dtype);       // bytes of one element
std::string_view name_of(DType dtype);  // "float32"
std::string_view name_of(RedOp op);     // "sum"
std::string_view name_of(OpKind kind);  // "allreduce"
bool is_floating(DType dtype);          // floating or complex

}  // namespace hfreduce
