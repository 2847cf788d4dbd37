// SPDX-License-Identifier: Apache-2.0
//
// ChunkExchange: one chunk of an allreduce between nodes. In each node one rank, the chunk's owner
// there, holds the node's partial sum of it; afterwards all owners hold the result.
//
//   one shot   every owner sends its partial to all others, and each adds all of them: one hop
//   direct     the owner in one node, the chunk's home, collects all partials, adds them and sends
//              the result back: two hops, and over all chunks a node sends 2(n-1)/n of the message
//   tree       along one of two binary trees, up and down: log n hops, at most two units a node
//
// Partials are added in order of node (direct, one shot) or local, first child, second child
// (tree): an order that depends on the layout and the position in the message alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "hfreduce/collectives/allreduce.h"
#include "hfreduce/topology/tree.h"
#include "hfreduce/wire/inbox.h"

namespace hfreduce {

enum class Exchange { kOneShot, kDirect, kTree };

// What the chunks of one operation have in common.
struct ExchangePlan {
  Exchange how = Exchange::kDirect;
  CommunicatorImpl* comm = nullptr;
  const Op* op = nullptr;
  const ReduceArgs* args = nullptr;
  const DoubleTree* trees = nullptr;
  bool native_wire = false;
  std::size_t chunk = 0;  // elements of a full chunk

  // Partials of `node` travel as elements, exact since a single rank's or by the user's wish;
  // otherwise as accumulators.
  bool native_partial(int node) const;
  std::size_t partial_size(int node) const;  // bytes of an element of a partial
  int owner(int node, std::size_t chunk_index) const;
  // Scratch bytes that one exchange needs.
  std::size_t scratch_bytes() const;
};

class ChunkExchange {
 public:
  ChunkExchange(const ExchangePlan& plan, std::byte* scratch) : plan_(plan), scratch_(scratch) {}

  // Where this node's partial of the next chunk is to be written by the owner: elements or
  // accumulators, see native_partial().
  std::byte* partial() const { return scratch_; }
  // Posts what can be received. `result` is where the owner wants the chunk's result.
  void prepare(std::size_t chunk_index, int tree, std::size_t count, std::byte* result);
  // The partial is there: at `partial`, which stays unchanged until finished().
  void start(const std::byte* partial);
  // Moves on; true if anything was done.
  bool advance();
  bool started() const { return started_; }
  bool has_result() const { return has_result_; }
  // The result is there, and nothing of this chunk is in use any more.
  bool finished() const;
  std::size_t chunk_index() const { return index_; }
  void cancel();
  void blockers(std::vector<int>* out) const;

 private:
  struct Incoming {
    RecvSlot slot;
    std::byte* data = nullptr;
    bool native = false;
  };

  void post(int node, int phase, std::byte* data, std::size_t bytes, RecvSlot* slot);
  void send(int node, int phase, const std::byte* data, std::size_t bytes);
  void send_partial(int node);
  void add_up(bool to_result);
  void prepare_tree(int tree);
  bool advance_tree();
  bool all_in() const;
  bool all_sent() const;

  const ExchangePlan& plan_;
  std::byte* const scratch_;
  std::size_t index_ = 0;
  std::size_t count_ = 0;
  std::byte* result_ = nullptr;
  const std::byte* partial_ = nullptr;
  bool started_ = false;
  bool added_ = false;
  bool has_result_ = false;
  int home_ = -1;
  TreeNode place_;
  std::deque<Incoming> partials_;  // in order of node, or of child; this node's own left out
  RecvSlot result_slot_;
  bool result_posted_ = false;
  std::deque<SendSlot> sends_;
};

}  // namespace hfreduce
