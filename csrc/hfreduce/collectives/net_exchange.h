// SPDX-License-Identifier: Apache-2.0
//
// NetExchange: what the collectives between nodes have in common: payloads to send and to receive,
// all at once, and work to do when they are there.
#pragma once

#include <cstddef>
#include <deque>

#include "hfreduce/engine/communicator_impl.h"

namespace hfreduce {

class NetExchange : public Op {
 public:
  using Op::Op;
  Advance advance() override;
  void cancel() override;
  void blockers(std::vector<int>* out) const override;

 protected:
  // Called in begin() or finish_stage(). Long payloads travel in pieces of kPieceBytes, so that one
  // of them does not keep a connection for itself. `stream` tells payloads between the same two
  // ranks apart.
  void add_send(int to, std::uint32_t stream, const void* data, std::size_t bytes);
  void add_receive(int from, std::uint32_t stream, void* data, std::size_t bytes);
  // All that was added is done. True if that was all, false if more was added.
  virtual bool finish_stage() { return true; }

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  std::deque<RecvSlot> receives_;
  std::deque<SendSlot> sends_;
  std::size_t received_ = 0;  // slots known to be done, from the front
  std::size_t sent_ = 0;
};

}  // namespace hfreduce
