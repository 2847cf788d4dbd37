// SPDX-License-Identifier: Apache-2.0
//
// ShmExchange: what the one-phase collectives inside a node have in common. In each step a member
// may put something into its slot; the members that want it wait for it and take it out. Steps are
// pipelined kSlots deep.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hfreduce/engine/communicator_impl.h"

namespace hfreduce {

class ShmExchange : public Op {
 public:
  ShmExchange(std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor);

  void begin() override;
  Advance advance() override;
  void blockers(std::vector<int>* out) const override;

 protected:
  // The number of steps, known to all members before any of them...
  void set_steps(std::uint64_t steps) { steps_ = steps; }
  // ...or only one step at first, and the rest once it has been taken out. Called in take_out(0).
  void add_steps(std::uint64_t more);

  virtual bool puts(std::uint64_t step) const = 0;
  virtual void put_in(std::uint64_t step, std::byte* slot) = 0;
  virtual bool wants(int member, std::uint64_t step) const = 0;
  // All that is wanted of `step` is there. An error is a mismatch with another rank.
  virtual void take_out(std::uint64_t step) = 0;

  const std::byte* slot_of(int member, std::uint64_t step) const {
    return team_.staging(member, base_ + step);
  }
  int rank_of(int member) const { return comm().mates()[member]; }
  void report_mismatch(int member, const std::string& what);

  Team& team_;
  const int me_;
  const int members_;

 private:
  std::uint64_t base_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t put_ = 0;
  std::uint64_t taken_ = 0;
  int arrived_ = 0;
  bool mismatch_ = false;
};

// A step's piece of [0, total): bytes [first, first + size).
struct Piece {
  std::size_t first;
  std::size_t size;
};
inline Piece piece_at(std::size_t total, std::size_t piece, std::uint64_t step) {
  std::size_t first = std::min<std::uint64_t>(total, piece * step);
  return {first, std::min(piece, total - first)};
}
inline std::uint64_t pieces_in(std::size_t total, std::size_t piece) {
  return (total + piece - 1) / piece;
}
// Blocks one behind the other, cut into pieces as if they were one.
class Strand {
 public:
  void add(std::size_t block_bytes) {
    sizes_.push_back(block_bytes);
    total_ += block_bytes;
  }
  std::size_t total() const { return total_; }  // bytes
  // visitor(block, at, size): bytes [at, at + size) of a block belong to `piece`; in order.
  template <typename Visitor>
  void visit(const Piece& piece, const Visitor& visitor) const {
    std::size_t first = piece.first;
    std::size_t left = piece.size;
    for (std::size_t block = 0; block < sizes_.size() && left > 0; ++block) {
      if (first >= sizes_[block]) {
        first -= sizes_[block];
        continue;
      }
      std::size_t size = std::min(left, sizes_[block] - first);
      visitor(block, first, size);
      first = 0;
      left -= size;
    }
  }

 private:
  std::vector<std::size_t> sizes_;
  std::size_t total_ = 0;
};

void count_shm_copy(std::size_t bytes);

}  // namespace hfreduce
