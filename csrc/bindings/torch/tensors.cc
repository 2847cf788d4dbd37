// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/tensors.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "bindings/torch/errors.h"

namespace hfreduce::adapter {
namespace {

std::optional<DType> lookup(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Float:
      return DType::kFloat32;
    case at::ScalarType::Double:
      return DType::kFloat64;
    case at::ScalarType::Half:
      return DType::kFloat16;
    case at::ScalarType::BFloat16:
      return DType::kBFloat16;
    case at::ScalarType::Bool:
      return DType::kBool;
    case at::ScalarType::Byte:
      return DType::kUInt8;
    case at::ScalarType::Char:
      return DType::kInt8;
    case at::ScalarType::UInt16:
      return DType::kUInt16;
    case at::ScalarType::Short:
      return DType::kInt16;
    case at::ScalarType::UInt32:
      return DType::kUInt32;
    case at::ScalarType::Int:
      return DType::kInt32;
    case at::ScalarType::UInt64:
      return DType::kUInt64;
    case at::ScalarType::Long:
      return DType::kInt64;
    case at::ScalarType::Float8_e4m3fn:
      return DType::kFloat8E4M3FN;
    case at::ScalarType::Float8_e5m2:
      return DType::kFloat8E5M2;
    case at::ScalarType::Float8_e4m3fnuz:
      return DType::kFloat8E4M3FNUZ;
    case at::ScalarType::Float8_e5m2fnuz:
      return DType::kFloat8E5M2FNUZ;
    case at::ScalarType::ComplexHalf:
      return DType::kComplex32;
    case at::ScalarType::ComplexFloat:
      return DType::kComplex64;
    case at::ScalarType::ComplexDouble:
      return DType::kComplex128;
    default:
      return std::nullopt;
  }
}

[[noreturn]] void throw_dtype(const at::Tensor& tensor, const char* op, const char* what) {
  throw_unsupported(op, std::string("tensors of type ") + c10::toString(tensor.scalar_type()) +
                            " cannot be " + what +
                            "; convert to a type that can, for example with tensor.float()");
}

const char* begin(ConstBytes bytes) { return static_cast<const char*>(bytes.data); }
const char* end(ConstBytes bytes) { return begin(bytes) + bytes.size; }

}  // namespace

DType reducible_dtype(const at::Tensor& tensor, const char* op) {
  if (const auto dtype = lookup(tensor.scalar_type())) return *dtype;
  throw_dtype(tensor, op, "reduced");
}

DType movable_dtype(const at::Tensor& tensor, const char* op) {
  if (const auto dtype = lookup(tensor.scalar_type())) return *dtype;
  // A quantized tensor is more than its elements.
  if (!c10::isQIntType(tensor.scalar_type())) {
    switch (tensor.element_size()) {
      case 1:
        return DType::kUInt8;
      case 2:
        return DType::kUInt16;
      case 4:
        return DType::kUInt32;
      case 8:
        return DType::kUInt64;
      default:
        break;
    }
  }
  throw_dtype(tensor, op, "sent");
}

Reduction to_reduction(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {RedOp::kSum, 1.0};
    case c10d::ReduceOp::AVG:
      return {RedOp::kAvg, 1.0};
    case c10d::ReduceOp::PRODUCT:
      return {RedOp::kProduct, 1.0};
    case c10d::ReduceOp::MIN:
      return {RedOp::kMin, 1.0};
    case c10d::ReduceOp::MAX:
      return {RedOp::kMax, 1.0};
    case c10d::ReduceOp::BAND:
      return {RedOp::kBand, 1.0};
    case c10d::ReduceOp::BOR:
      return {RedOp::kBor, 1.0};
    case c10d::ReduceOp::BXOR:
      return {RedOp::kBxor, 1.0};
    case c10d::ReduceOp::PREMUL_SUM: {
      // The supplement's only type; older torch knows it by this name alone.
      const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (factor == nullptr) throw_invalid("reduce", "PREMUL_SUM carries no factor");
      return {RedOp::kPremulSum, factor->tensor_factor.defined()
                                     ? factor->tensor_factor.item().toDouble()
                                     : factor->double_factor};
    }
    default:
      throw_invalid("reduce", "the reduce operation ", int{op.op_}, " is not known");
  }
}

void check_dense(const at::Tensor& tensor, const char* op, const char* field) {
  if (!tensor.defined()) throw_invalid(op, field, " is not a tensor");
  if (tensor.layout() != at::kStrided) {
    throw_invalid(op, field, " is ", tensor.layout(),
                  "; only all_reduce takes sparse tensors, use ", field, ".to_dense()");
  }
  if (!tensor.device().is_cpu()) {
    throw_invalid(op, field, " is on ", tensor.device(),
                  ", but this backend moves CPU tensors; use ", field,
                  ".cpu(), or give the group a backend for that device as well");
  }
}

void check_writable(const at::Tensor& tensor, const char* op, const char* field) {
  check_dense(tensor, op, field);
  if (!tensor.is_contiguous() && at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    throw_invalid(op, "several elements of ", field, " share memory (an expanded tensor); use ",
                  field, ".clone()");
  }
}

void check_same_dtype(const at::Tensor& a, const at::Tensor& b, const char* op, const char* field) {
  if (a.scalar_type() != b.scalar_type()) {
    throw_invalid(op, field, " has type ", b.scalar_type(), " and the other tensors ",
                  a.scalar_type(), "; all must have one type");
  }
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* op, const char* field) {
  if (tensors.size() != 1) {
    throw_invalid(op, field, " has ", tensors.size(), " tensors; pass exactly one");
  }
  return tensors.front();
}

void check_count(std::size_t got, int ranks, const char* op, const char* field) {
  if (got != static_cast<std::size_t>(ranks)) {
    throw_invalid(op, field, " has ", got, " entries, but the group has ", ranks,
                  " ranks; pass one for each");
  }
}

void check_root(std::int64_t root, std::int64_t root_tensor, int ranks, const char* op) {
  if (root < 0 || root >= ranks) {
    throw_invalid(op, "the root is rank ", root, ", but the group has ", ranks, " ranks; use 0 to ",
                  ranks - 1);
  }
  if (root_tensor != 0) throw_invalid(op, "the root tensor is ", root_tensor, "; use 0");
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

Bytes writable(const at::Tensor& tensor) { return {tensor.mutable_data_ptr(), tensor.nbytes()}; }

ConstBytes readable(const at::Tensor& tensor) { return {tensor.const_data_ptr(), tensor.nbytes()}; }

std::vector<Bytes> writable_pieces(const at::Tensor& tensor, int ranks) {
  const std::size_t size = tensor.nbytes() / static_cast<std::size_t>(ranks);
  auto* data = static_cast<char*>(tensor.mutable_data_ptr());
  std::vector<Bytes> pieces(static_cast<std::size_t>(ranks));
  for (Bytes& piece : pieces) {
    piece = {data, size};
    data += size;
  }
  return pieces;
}

std::vector<ConstBytes> readable_pieces(const at::Tensor& tensor, int ranks) {
  const std::size_t size = tensor.nbytes() / static_cast<std::size_t>(ranks);
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  std::vector<ConstBytes> pieces(static_cast<std::size_t>(ranks));
  for (ConstBytes& piece : pieces) {
    piece = {data, size};
    data += size;
  }
  return pieces;
}

bool overlap(ConstBytes a, ConstBytes b) {
  return a.size != 0 && b.size != 0 && std::less<>()(begin(a), end(b)) &&
         std::less<>()(begin(b), end(a));
}

bool disjoint(const std::vector<Bytes>& pieces) {
  std::vector<ConstBytes> sorted;
  sorted.reserve(pieces.size());
  for (const Bytes& piece : pieces) {
    if (piece.size != 0) sorted.push_back(as_const(piece));
  }
  const auto by_address = [](ConstBytes a, ConstBytes b) {
    return std::less<>()(begin(a), begin(b));
  };
  std::sort(sorted.begin(), sorted.end(), by_address);
  const auto touching = [](ConstBytes a, ConstBytes b) { return overlap(a, b); };
  return std::adjacent_find(sorted.begin(), sorted.end(), touching) == sorted.end();
}

}  // namespace hfreduce::adapter
