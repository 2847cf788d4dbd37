// SPDX-License-Identifier: Apache-2.0
//
// Runner: one rank's walk through a program. It starts operations without waiting for the ones
// before, in place or not, in memory of any alignment, and compares all that comes out.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hfreduce/properties/program.h"

namespace hfreduce {

// Memory with a margin on both sides that nobody may write to.
class Buffer {
 public:
  Buffer(Communicator& comm, std::size_t bytes, bool shared, std::size_t shift)
      : bytes_(bytes), before_(kMargin + shift) {
    const std::size_t whole = before_ + bytes + kMargin;
    if (shared) memory_ = comm.allocate(whole);
    if (!memory_) memory_ = std::shared_ptr<std::byte[]>(new std::byte[whole]);
    std::memset(memory_.get(), kFill, whole);
  }
  void* data() const { return start() + before_; }
  std::size_t size() const { return bytes_; }
  void set(const Block& block) const {
    if (!block.empty()) std::memcpy(data(), block.data(), block.size());
  }
  bool holds(const Block& block) const {
    return block.size() == bytes_ &&
           (bytes_ == 0 || std::memcmp(data(), block.data(), bytes_) == 0);
  }
  bool margins_intact() const {
    auto filled = [](std::byte byte) { return byte == static_cast<std::byte>(kFill); };
    const std::byte* end = start() + before_ + bytes_;
    return std::all_of(start(), start() + before_, filled) &&
           std::all_of(end, end + kMargin, filled);
  }
  operator Bytes() const { return {data(), bytes_}; }
  operator ConstBytes() const { return {data(), bytes_}; }

 private:
  static constexpr std::size_t kMargin = 64;
  static constexpr int kFill = 0xa5;
  std::byte* start() const { return static_cast<std::byte*>(memory_.get()); }
  std::shared_ptr<void> memory_;
  std::size_t bytes_;
  std::size_t before_;
};

class Runner {
 public:
  Runner(const Program& program, Communicator& comm)
      : program_(program),
        comm_(comm),
        me_(comm.rank()),
        ranks_(static_cast<std::size_t>(comm.size())),
        random_(program.seed + 7919 * static_cast<std::uint64_t>(me_ + 1)) {}

  // What went wrong; empty if nothing did.
  std::string run() {
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      start(i);
      while (running_.size() > most_running_ || (!running_.empty() && random_() % 4 == 0)) {
        if (std::string wrong = finish_one(); !wrong.empty()) return wrong;
      }
    }
    while (!running_.empty()) {
      if (std::string wrong = finish_one(); !wrong.empty()) return wrong;
    }
    return {};
  }

 private:
  struct Expected {
    Buffer buffer;
    Block contents;
  };
  struct Running {
    std::size_t step;
    RequestPtr request;
    std::vector<Expected> expected;
  };

  Buffer make(std::size_t bytes) {
    const bool shared = random_() % 3 == 0;
    return Buffer(comm_, bytes, shared, random_() % 2 == 0 ? 0 : random_() % 64);
  }
  bool flip() { return random_() % 2 == 0; }

  // A buffer that holds an input, and must hold it still when all is done.
  Buffer input(const Block& block) {
    Buffer buffer = make(block.size());
    buffer.set(block);
    expect(buffer, block);
    return buffer;
  }
  Buffer output(const Block& expected) {
    Buffer buffer = make(expected.size());
    expect(buffer, expected);
    return buffer;
  }
  Buffer in_place(const Block& block, const Block& expected) {
    Buffer buffer = make(block.size());
    buffer.set(block);
    expect(buffer, expected);
    return buffer;
  }
  void expect(const Buffer& buffer, Block contents) {
    now_.expected.push_back({buffer, std::move(contents)});
  }

  Block put_in(int rank, std::size_t which, std::size_t count) const {
    return program_.input(now_.step, rank, which, count);
  }
  std::vector<Block> put_in_by_all(std::size_t which, std::size_t count) const {
    std::vector<Block> blocks;
    for (int rank = 0; rank < comm_.size(); ++rank) blocks.push_back(put_in(rank, which, count));
    return blocks;
  }
  Block reduction(const Step& step, std::size_t which, std::size_t count) const {
    return reduced(step.dtype, step.op, step.factors, put_in_by_all(which, count));
  }

  void start(std::size_t index) {
    now_ = {index, nullptr, {}};
    const Step& step = program_.steps[index];
    OpOptions options;
    options.will_wait = random_() % 8 == 0;
    now_.request = start(step, options);
    if (now_.request) running_.push_back(std::move(now_));
  }

  RequestPtr start(const Step& step, OpOptions options) {
    switch (step.kind) {
      case OpKind::kAllreduce:
      case OpKind::kReduce:
        return start_reduce(step, options);
      case OpKind::kBroadcast: {
        const Block block = put_in(step.root, 0, step.counts[0]);
        Buffer data = me_ == step.root ? input(block) : output(block);
        return comm_.broadcast(data.data(), step.counts[0], step.dtype, step.root, options);
      }
      case OpKind::kAllgather:
        return start_allgather(step, options);
      case OpKind::kReduceScatter:
        return start_reduce_scatter(step, options);
      case OpKind::kAlltoall:
        return start_alltoall(step, options);
      case OpKind::kGather:
        return start_gather(step, options);
      case OpKind::kScatter:
        return start_scatter(step, options);
      case OpKind::kSend:
        return start_message(step, options);
      default:
        return comm_.barrier(options);
    }
  }

  RequestPtr start_reduce(const Step& step, OpOptions options) {
    const std::size_t count = step.counts[0];
    const Reduction how{step.op, step.factors[me_]};
    const Block mine = put_in(me_, 0, count);
    const bool wanted = step.kind == OpKind::kAllreduce || me_ == step.root;
    void* out = nullptr;
    void* in = nullptr;
    if (wanted && flip()) {
      in = out = in_place(mine, reduction(step, 0, count)).data();
    } else {
      in = input(mine).data();
      if (wanted) out = output(reduction(step, 0, count)).data();
    }
    if (step.kind == OpKind::kAllreduce) {
      return comm_.allreduce(in, out, count, step.dtype, how, options);
    }
    return comm_.reduce(in, out, count, step.dtype, how, step.root, options);
  }

  RequestPtr start_allgather(const Step& step, OpOptions options) {
    std::vector<Bytes> out;
    ConstBytes in;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      const Block block = put_in(rank, 0, step.counts[rank]);
      const bool here = rank == me_ && flip();
      Buffer buffer = here ? input(block) : output(block);
      if (rank == me_) in = here ? ConstBytes(buffer) : ConstBytes(input(block));
      out.push_back(buffer);
    }
    return comm_.allgather(in, out, step.dtype, options);
  }

  RequestPtr start_reduce_scatter(const Step& step, OpOptions options) {
    std::vector<ConstBytes> in;
    Bytes out;
    for (std::size_t to = 0; to < ranks_; ++to) {
      const Block block = put_in(me_, to, step.counts[to]);
      if (static_cast<int>(to) != me_) {
        in.push_back(input(block));
        continue;
      }
      const Block result = reduction(step, to, step.counts[to]);
      if (flip()) {
        Buffer both = in_place(block, result);
        in.push_back(both);
        out = both;
      } else {
        in.push_back(input(block));
        out = output(result);
      }
    }
    return comm_.reduce_scatter(in, out, step.dtype, {step.op, step.factors[me_]}, options);
  }

  RequestPtr start_alltoall(const Step& step, OpOptions options) {
    std::vector<ConstBytes> in;
    std::vector<Bytes> out;
    const auto me = static_cast<std::size_t>(me_);
    for (std::size_t other = 0; other < ranks_; ++other) {
      in.push_back(input(put_in(me_, other, step.counts[me * ranks_ + other])));
      const int from = static_cast<int>(other);
      out.push_back(output(put_in(from, me, step.counts[other * ranks_ + me])));
    }
    return comm_.alltoall(in, out, step.dtype, options);
  }

  RequestPtr start_gather(const Step& step, OpOptions options) {
    const Block mine = put_in(me_, 0, step.counts[0]);
    if (me_ != step.root) return comm_.gather(input(mine), {}, step.dtype, step.root, options);
    std::vector<Bytes> out;
    ConstBytes in;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      const bool here = rank == me_ && flip();
      const Block block = put_in(rank, 0, step.counts[0]);
      Buffer buffer = here ? input(block) : output(block);
      if (rank == me_) in = here ? ConstBytes(buffer) : ConstBytes(input(block));
      out.push_back(buffer);
    }
    return comm_.gather(in, out, step.dtype, step.root, options);
  }

  RequestPtr start_scatter(const Step& step, OpOptions options) {
    auto block_of = [&](int rank) {
      return put_in(step.root, static_cast<std::size_t>(rank), step.counts[0]);
    };
    if (me_ != step.root) {
      return comm_.scatter({}, output(block_of(me_)), step.dtype, step.root, options);
    }
    std::vector<ConstBytes> in;
    Bytes out;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      Buffer buffer = input(block_of(rank));
      in.push_back(buffer);
      if (rank == me_) out = flip() ? Bytes(buffer) : Bytes(output(block_of(rank)));
    }
    return comm_.scatter(in, out, step.dtype, step.root, options);
  }

  RequestPtr start_message(const Step& step, OpOptions options) {
    const Block block = put_in(step.root, 0, step.counts[0]);
    if (me_ == step.root) return comm_.send(input(block), step.to, step.tag, options);
    if (me_ != step.to) return nullptr;
    if (step.from_any) return comm_.recv_any(output(block), step.tag, options);
    return comm_.recv(output(block), step.root, step.tag, options);
  }

  std::string finish_one() {
    const std::size_t which = random_() % running_.size();
    Running done = std::move(running_[which]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
    const std::string what = "rank " + std::to_string(me_) + ", step " + std::to_string(done.step) +
                             " " + program_.steps[done.step].to_string() + ": ";
    if (ff::Status status = done.request->wait(); !status) return what + status.to_string();
    for (const Expected& expected : done.expected) {
      if (!expected.buffer.margins_intact()) return what + "wrote outside a buffer";
      if (!expected.buffer.holds(expected.contents)) return what + "wrong contents";
    }
    return {};
  }

  const Program& program_;
  Communicator& comm_;
  const int me_;
  const std::size_t ranks_;
  std::mt19937_64 random_;
  const std::size_t most_running_ = 6;
  Running now_;
  std::vector<Running> running_;
};

}  // namespace hfreduce
