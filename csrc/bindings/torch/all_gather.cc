// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/joined_request.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {
namespace {

constexpr const char* kAllGatherName = "all_gather";

// `outputs` are one tensor a rank.
void check_outputs(const Tensors& outputs, const at::Tensor& input, int rank, int ranks) {
  check_count(outputs.size(), ranks, kAllGatherName, "tensor_list");
  for (const at::Tensor& output : outputs) {
    check_writable(output, kAllGatherName, "tensor_list");
    check_same_dtype(input, output, kAllGatherName, "tensor_list");
  }
  // Sizes may differ from rank to rank; what others send is compared when it arrives.
  const std::int64_t own = outputs[static_cast<std::size_t>(rank)].numel();
  if (own != input.numel()) {
    throw_invalid(kAllGatherName, "tensor_list[", rank, "] has ", own,
                  " elements, but this rank contributes ", input.numel(),
                  "; both must be of one size");
  }
}

// True if `input` may be read while the pieces are written: it is the piece that it fills anyway,
// or no piece touches it.
bool may_read_in_place(ConstBytes input, const std::vector<Bytes>& pieces, int rank) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool is_own = i == static_cast<std::size_t>(rank) && pieces[i].data == input.data;
    if (!is_own && overlap(input, as_const(pieces[i]))) return false;
  }
  return true;
}

ConstBytes take_input(Work& work, const at::Tensor& input, const std::vector<Bytes>& pieces,
                      int rank) {
  const ConstBytes in_place = readable(input);
  if (is_plain(input) && may_read_in_place(in_place, pieces, rank)) {
    work.read(input);
    return in_place;
  }
  return readable(work.read_copy(input));
}

}  // namespace

WorkPtr Backend::allgather(TensorLists& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only(inputs, kAllGatherName, "tensor");
  check_dense(input, kAllGatherName, "tensor");
  if (outputs.size() != 1) {
    throw_invalid(kAllGatherName, outputs.size(), " output lists were given; pass exactly one");
  }
  check_outputs(outputs.front(), input, rank_, size_);
  const DType dtype = movable_dtype(input, kAllGatherName);
  auto work = new_work(c10d::OpType::ALLGATHER, Title::kAllGather, options.asyncOp, inputs);
  std::vector<Bytes> pieces = work->write_each(outputs.front());
  const ConstBytes in = take_input(*work, input, pieces, rank_);
  work->returns(outputs.front());
  return launch(std::move(work),
                communicator().allgather(in, std::move(pieces), dtype, op_options(options)));
}

RequestPtr Backend::all_gather_flat(Work& work, const at::Tensor& output, const at::Tensor& input,
                                    OpOptions options) {
  std::vector<Bytes> pieces = writable_pieces(work.write(output), size_);
  const ConstBytes in = take_input(work, input, pieces, rank_);
  return communicator().allgather(in, std::move(pieces), movable_dtype(input, kAllGatherName),
                                  options);
}

WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& options) {
  Tensors outputs = {output};
  Tensors inputs = {input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  if (outputs.size() != inputs.size()) {
    throw_invalid(kAllGatherName, outputs.size(), " outputs for ", inputs.size(),
                  " inputs; pass one for each");
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_dense(inputs[i], kAllGatherName, "input");
    check_writable(outputs[i], kAllGatherName, "output");
    check_same_dtype(inputs[i], outputs[i], kAllGatherName, "output");
    if (outputs[i].numel() != inputs[i].numel() * size_) {
      throw_invalid(kAllGatherName, "the output has ", outputs[i].numel(), " elements; make it ",
                    inputs[i].numel(), " (the input) x ", size_,
                    " (the ranks) = ", inputs[i].numel() * size_);
    }
    movable_dtype(inputs[i], kAllGatherName);
  }
  const c10d::OpType type =
      inputs.size() == 1 ? c10d::OpType::_ALLGATHER_BASE : c10d::OpType::COALESCED;
  auto work = new_work(type, Title::kAllGather, options.asyncOp, inputs);
  work->returns(outputs);
  std::vector<RequestPtr> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    parts.push_back(all_gather_flat(*work, outputs[i], inputs[i], op_options(options)));
  }
  if (parts.size() == 1) return launch(std::move(work), std::move(parts.front()));
  return launch(std::move(work), std::make_shared<JoinedRequest>(std::move(parts)));
}

WorkPtr Backend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  // outputs[r][i] receives rank r's inputs[i].
  check_count(outputs.size(), size_, kAllGatherName, "output_tensor_lists");
  for (const Tensors& list : outputs) {
    if (list.size() != inputs.size()) {
      throw_invalid(kAllGatherName, "a list in output_tensor_lists has ", list.size(),
                    " tensors for ", inputs.size(), " inputs; pass one for each");
    }
  }
  TensorLists by_input(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_dense(inputs[i], kAllGatherName, "input_tensor_list");
    for (const Tensors& list : outputs) by_input[i].push_back(list[i]);
    check_outputs(by_input[i], inputs[i], rank_, size_);
    movable_dtype(inputs[i], kAllGatherName);
  }
  auto work =
      new_work(c10d::OpType::ALLGATHER_COALESCED, Title::kAllGather, options.asyncOp, inputs);
  std::vector<RequestPtr> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Bytes> pieces = work->write_each(by_input[i]);
    const ConstBytes in = take_input(*work, inputs[i], pieces, rank_);
    parts.push_back(communicator().allgather(
        in, std::move(pieces), movable_dtype(inputs[i], kAllGatherName), op_options(options)));
  }
  for (const Tensors& list : outputs) work->returns(list);
  return launch(std::move(work), std::make_shared<JoinedRequest>(std::move(parts)));
}

}  // namespace hfreduce::adapter
