// SPDX-License-Identifier: Apache-2.0
//
// Send and receive, matched by (rank, tag). They stand outside the order of collectives.
#include <fmt/format.h>

#include "hfreduce/engine/communicator_impl.h"

namespace hfreduce {
namespace {

class Send final : public Op {
 public:
  Send(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor, ConstBytes data,
       int to, std::uint32_t tag)
      : Op(std::move(comm), descriptor), data_(data), to_(to), tag_(tag) {}

  void begin() override { comm().inbox().send_message(to_, tag_, data_.data, data_.size, &slot_); }
  Advance advance() override {
    return slot_.done.load(std::memory_order_acquire) ? Advance::kDone : Advance::kBlocked;
  }
  void cancel() override {
    if (!slot_.done.load(std::memory_order_acquire)) comm().inbox().cancel(&slot_);
  }
  void blockers(std::vector<int>* out) const override { out->push_back(to_); }

 private:
  const ConstBytes data_;
  const int to_;
  const std::uint32_t tag_;
  SendSlot slot_;
};

class Recv final : public Op {
 public:
  // `from` -1: any rank.
  Recv(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor, Bytes data, int from,
       std::uint32_t tag)
      : Op(std::move(comm), descriptor), data_(data), from_(from), tag_(tag) {}

  void begin() override {
    comm().inbox().post_message(from_, tag_, data_.data, data_.size, &slot_);
  }
  Advance advance() override {
    return slot_.done.load(std::memory_order_acquire) ? Advance::kDone : Advance::kBlocked;
  }
  void cancel() override {
    if (!slot_.done.load(std::memory_order_acquire)) comm().inbox().cancel(&slot_);
  }
  void blockers(std::vector<int>* out) const override {
    if (from_ >= 0) out->push_back(from_);
  }
  int source() const override { return slot_.rank; }

 private:
  const Bytes data_;
  const int from_;
  const std::uint32_t tag_;
  RecvSlot slot_;
};

}  // namespace

RequestPtr CommunicatorImpl::send(ConstBytes data, int to, std::uint32_t tag, OpOptions options) {
  if (to < 0 || to >= size_ || to == rank_) {
    return reject(OpKind::kSend, fmt::format("rank {} cannot send to rank {}: the other ranks of "
                                             "the group are 0 to {}",
                                             rank_, to, size_ - 1));
  }
  OpDescriptor descriptor = describe(OpKind::kSend, DType::kUInt8, RedOp::kSum, to, data.size);
  return submit(std::make_shared<Send>(shared_from_this(), descriptor, data, to, tag), options);
}

RequestPtr CommunicatorImpl::recv(Bytes data, int from, std::uint32_t tag, OpOptions options) {
  if (from < 0 || from >= size_ || from == rank_) {
    return reject(OpKind::kRecv, fmt::format("rank {} cannot receive from rank {}: the other ranks "
                                             "of the group are 0 to {}",
                                             rank_, from, size_ - 1));
  }
  OpDescriptor descriptor = describe(OpKind::kRecv, DType::kUInt8, RedOp::kSum, from, data.size);
  return submit(std::make_shared<Recv>(shared_from_this(), descriptor, data, from, tag), options);
}

RequestPtr CommunicatorImpl::recv_any(Bytes data, std::uint32_t tag, OpOptions options) {
  OpDescriptor descriptor = describe(OpKind::kRecv, DType::kUInt8, RedOp::kSum, -1, data.size);
  return submit(std::make_shared<Recv>(shared_from_this(), descriptor, data, -1, tag), options);
}

}  // namespace hfreduce
