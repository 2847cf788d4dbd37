// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {
namespace {

constexpr const char* kAllToAllName = "all_to_all";

// Rows of dimension 0 for each rank.
std::vector<std::int64_t> rows_for_each(const at::Tensor& tensor,
                                        const std::vector<std::int64_t>& splits, int ranks,
                                        const char* field) {
  const std::int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  if (splits.empty()) {
    if (rows % ranks != 0) {
      throw_invalid(kAllToAllName, "dimension 0 of ", field, " is ", rows, ", which the ", ranks,
                    " ranks cannot share equally; pass ", field, "_split_sizes");
    }
    return std::vector<std::int64_t>(static_cast<std::size_t>(ranks), rows / ranks);
  }
  check_count(splits.size(), ranks, kAllToAllName, (std::string(field) + "_split_sizes").c_str());
  for (const std::int64_t split : splits) {
    if (split < 0) {
      throw_invalid(kAllToAllName, field, "_split_sizes has ", split, "; use 0 or more");
    }
  }
  const std::int64_t sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  if (sum != rows) {
    throw_invalid(kAllToAllName, field, "_split_sizes add up to ", sum, ", but dimension 0 of the ",
                  field, " is ", rows, "; both must be equal");
  }
  return splits;
}

template <class Piece, class Data>
std::vector<Piece> cut(Data* data, std::size_t total, const std::vector<std::int64_t>& rows) {
  const auto count = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  const std::size_t row = count == 0 ? 0 : total / static_cast<std::size_t>(count);
  std::vector<Piece> pieces;
  pieces.reserve(rows.size());
  for (const std::int64_t piece : rows) {
    const std::size_t size = row * static_cast<std::size_t>(piece);
    pieces.push_back({data, size});
    data += size;
  }
  return pieces;
}

}  // namespace

WorkPtr Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                               std::vector<std::int64_t>& output_splits,
                               std::vector<std::int64_t>& input_splits,
                               const c10d::AllToAllOptions& options) {
  check_writable(output, kAllToAllName, "output");
  check_dense(input, kAllToAllName, "input");
  check_same_dtype(input, output, kAllToAllName, "output");
  const auto output_rows = rows_for_each(output, output_splits, size_, "output");
  const auto input_rows = rows_for_each(input, input_splits, size_, "input");
  const DType dtype = movable_dtype(input, kAllToAllName);
  auto work = new_work(c10d::OpType::ALLTOALL_BASE, Title::kAllToAll, options.asyncOp, {input});
  const at::Tensor out = work->write(output);
  const bool shares = overlap(readable(input), readable(out));
  const at::Tensor in = shares ? work->read_copy(input) : work->read(input);
  work->returns(output);
  return launch(
      std::move(work),
      communicator().alltoall(
          cut<ConstBytes>(static_cast<const char*>(in.const_data_ptr()), in.nbytes(), input_rows),
          cut<Bytes>(static_cast<char*>(out.mutable_data_ptr()), out.nbytes(), output_rows), dtype,
          op_options(options)));
}

WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  check_count(outputs.size(), size_, kAllToAllName, "output_tensor_list");
  check_count(inputs.size(), size_, kAllToAllName, "input_tensor_list");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_writable(outputs[i], kAllToAllName, "output_tensor_list");
    check_dense(inputs[i], kAllToAllName, "input_tensor_list");
    check_same_dtype(inputs.front(), inputs[i], kAllToAllName, "input_tensor_list");
    check_same_dtype(inputs.front(), outputs[i], kAllToAllName, "output_tensor_list");
  }
  const DType dtype = movable_dtype(inputs.front(), kAllToAllName);
  auto work = new_work(c10d::OpType::ALLTOALL, Title::kAllToAll, options.asyncOp, inputs);
  std::vector<Bytes> out = work->write_each(outputs);
  std::vector<ConstBytes> in;
  in.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    bool shares = false;
    for (const Bytes& piece : out) shares |= overlap(readable(input), as_const(piece));
    in.push_back(readable(shares ? work->read_copy(input) : work->read(input)));
  }
  work->returns(outputs);
  return launch(std::move(work),
                communicator().alltoall(std::move(in), std::move(out), dtype, op_options(options)));
}

}  // namespace hfreduce::adapter
