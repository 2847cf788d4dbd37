// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/types.h"

#include <array>

namespace hfreduce {
namespace {

struct DTypeInfo {
  std::string_view name;
  std::size_t size;
  bool floating;
};

constexpr std::array<DTypeInfo, kDTypeCount> kDTypes = {{
    {"bool", 1, false},       {"uint8", 1, false},          {"int8", 1, false},
    {"uint16", 2, false},     {"int16", 2, false},          {"uint32", 4, false},
    {"int32", 4, false},      {"uint64", 8, false},         {"int64", 8, false},
    {"float16", 2, true},     {"bfloat16", 2, true},        {"float8_e4m3fn", 1, true},
    {"float8_e5m2", 1, true}, {"float8_e4m3fnuz", 1, true}, {"float8_e5m2fnuz", 1, true},
    {"float32", 4, true},     {"float64", 8, true},         {"complex32", 4, true},
    {"complex64", 8, true},   {"complex128", 16, true},
}};

constexpr std::array<std::string_view, kRedOpCount> kRedOps = {
    "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};

constexpr std::array<std::string_view, 12> kOpKinds = {
    "none",     "allreduce", "reduce",  "broadcast", "allgather", "reduce_scatter",
    "alltoall", "gather",    "scatter", "barrier",   "send",      "recv"};

}  // namespace

std::size_t size_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].size; }

std::string_view name_of(DType dtype) {
  auto index = static_cast<std::size_t>(dtype);
  return index < kDTypes.size() ? kDTypes[index].name : "unknown";
}

std::string_view name_of(RedOp op) {
  auto index = static_cast<std::size_t>(op);
  return index < kRedOps.size() ? kRedOps[index] : "unknown";
}

std::string_view name_of(OpKind kind) {
  auto index = static_cast<std::size_t>(kind);
  return index < kOpKinds.size() ? kOpKinds[index] : "unknown";
}

bool is_floating(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].floating; }

}  // namespace hfreduce
