// SPDX-License-Identifier: Apache-2.0
//
// What the engine may be given of a tensor: its element type, and checks that say what is wrong.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "hfreduce/communicator.h"
#include "hfreduce/types.h"

namespace hfreduce::adapter {

// For reductions: every type that libhfreduce can add.
DType reducible_dtype(const at::Tensor& tensor, const char* op);
// For operations that only move elements: also types that nobody can add (packed and scale types),
// which travel as unsigned integers of their size.
DType movable_dtype(const at::Tensor& tensor, const char* op);

Reduction to_reduction(const c10d::ReduceOp& op);

// Throws unless `tensor` is a dense CPU tensor; `field` is the name under which the person passed
// it.
void check_dense(const at::Tensor& tensor, const char* op, const char* field);
// As above, and that `tensor` can be written: no two of its elements may share memory.
void check_writable(const at::Tensor& tensor, const char* op, const char* field);
void check_same_dtype(const at::Tensor& a, const at::Tensor& b, const char* op, const char* field);
// The one tensor of a list that torch passes for historical reasons.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* op, const char* field);
void check_count(std::size_t got, int ranks, const char* op, const char* field);
void check_root(std::int64_t root, std::int64_t root_tensor, int ranks, const char* op);

// True if the memory can be used as it is: elements in order, without gaps, and meant literally
// (not a lazily conjugated or negated view).
bool is_plain(const at::Tensor& tensor);

Bytes writable(const at::Tensor& tensor);
ConstBytes readable(const at::Tensor& tensor);
// A plain tensor cut into `ranks` equal pieces.
std::vector<Bytes> writable_pieces(const at::Tensor& tensor, int ranks);
std::vector<ConstBytes> readable_pieces(const at::Tensor& tensor, int ranks);

bool overlap(ConstBytes a, ConstBytes b);
inline ConstBytes as_const(Bytes bytes) { return {bytes.data, bytes.size}; }
// True if no two of the pieces share memory.
bool disjoint(const std::vector<Bytes>& pieces);

}  // namespace hfreduce::adapter
