// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/tensors.h"

namespace hfreduce::adapter {

void Backend::check_peer(int peer, int tag, const char* op) {
  if (peer < 0 || peer >= size_) {
    throw_invalid(op, "the peer is rank ", peer, ", but the group has ", size_, " ranks; use 0 to ",
                  size_ - 1);
  }
  if (tag < 0) throw_invalid(op, "the tag is ", tag, "; use 0 or more");
}

WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = only(tensors, "send", "tensor");
  check_dense(tensor, "send", "tensor");
  check_peer(to, tag, "send");
  movable_dtype(tensor, "send");
  auto work = new_work(c10d::OpType::SEND, Title::kSend, true, tensors);
  const ConstBytes data = readable(work->read(tensor));
  work->returns(tensor);
  return launch(std::move(work), communicator().send(data, to, static_cast<std::uint32_t>(tag)));
}

WorkPtr Backend::recv(Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = only(tensors, "recv", "tensor");
  check_writable(tensor, "recv", "tensor");
  check_peer(from, tag, "recv");
  movable_dtype(tensor, "recv");
  auto work = new_work(c10d::OpType::RECV, Title::kRecv, true, tensors);
  const Bytes data = writable(work->write(tensor));
  work->returns(tensor);
  return launch(std::move(work), communicator().recv(data, from, static_cast<std::uint32_t>(tag)));
}

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = only(tensors, "recv", "tensor");
  check_writable(tensor, "recv", "tensor");
  check_peer(0, tag, "recv");
  movable_dtype(tensor, "recv");
  auto work = new_work(c10d::OpType::RECVANYSOURCE, Title::kRecvAnySource, true, tensors);
  const Bytes data = writable(work->write(tensor));
  work->returns(tensor);
  return launch(std::move(work), communicator().recv_any(data, static_cast<std::uint32_t>(tag)));
}

}  // namespace hfreduce::adapter
