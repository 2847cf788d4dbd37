// SPDX-License-Identifier: Apache-2.0
//
// Communicator: a group of ranks and the collective operations among them.
//
// Thread safety: any thread may start operations; operations of one communicator take effect in
// the order in which they were started, and every rank must start the same ones in the same order
// (send and recv stand outside that order). Buffers belong to the operation until it is done.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "hfreduce/options.h"
#include "hfreduce/store.h"
#include "hfreduce/types.h"

namespace hfreduce {

class Engine;

// A piece of memory of a rank's own.
struct Bytes {
  void* data = nullptr;
  std::size_t size = 0;  // bytes
};
struct ConstBytes {
  const void* data = nullptr;
  std::size_t size = 0;  // bytes
};

// An operation in flight. Copies of the pointer are cheap; the operation runs to its end whether or
// not anyone keeps it.
class Request {
 public:
  virtual ~Request() = default;
  virtual bool done() const = 0;
  // Blocks until done, and helps the operation on while it does. A `timeout` of zero means the
  // operation's own. kTimeout: the operation is still running.
  virtual ff::Status wait(
      std::chrono::milliseconds timeout = std::chrono::milliseconds::zero()) = 0;
  // As wait(), but returns kAborted within about 50 ms of `interrupted` becoming true.
  virtual ff::Status wait(std::chrono::milliseconds timeout,
                          const std::function<bool()>& interrupted) = 0;
  // The outcome; OK while running.
  virtual ff::Status status() const = 0;
  // Calls `callback` once, when done: at once on this thread if already done, else on one of the
  // engine's callback threads. It may start operations and wait for them. No lock is held during
  // the call.
  virtual void on_done(std::function<void()> callback) = 0;
  virtual OpKind kind() const = 0;
  virtual std::uint64_t sequence() const = 0;  // per communicator, from 1; 0 for send and recv
  virtual int source() const = 0;              // recv: the rank the message came from; else -1
};
using RequestPtr = std::shared_ptr<Request>;

struct OpOptions {
  std::chrono::milliseconds timeout{0};  // 0: the communicator's
  // The caller will call wait() at once and so drive the operation: spares waking the engine.
  bool will_wait = false;
};

// What the engine has done since the process started; for tests, doctor and benchmarks.
struct Counters {
  std::uint64_t operations = 0;          // finished, of all communicators
  std::uint64_t shm_bytes_copied = 0;    // into and out of staging memory
  std::uint64_t net_bytes_sent = 0;      // payload
  std::uint64_t net_bytes_received = 0;  // payload
  std::uint64_t net_frames_sent = 0;
  std::uint64_t arena_operations = 0;  // operations that found their buffers in shared memory
};

// One line about a rank, for errors and for doctor.
struct RankInfo {
  int rank = -1;
  int global_rank = -1;
  std::string host;
  std::int64_t pid = 0;
  int node = -1;        // index of the node, in order of its lowest rank
  int local_rank = -1;  // index within the node
  std::string path;     // "self", "shm", "tcp 10.0.0.2 (eth0)"
};

class Communicator {
 public:
  // Meets the other ranks through `store` (keys below `prefix`). Errors: kTimeout names the ranks
  // that did not arrive; kRefused a wrong key or version.
  static ff::Status create(std::shared_ptr<Store> store, const std::string& prefix, int rank,
                           int size, const Options& options, std::shared_ptr<Communicator>* out,
                           std::shared_ptr<Engine> engine = nullptr);
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const Options& options() const = 0;
  virtual std::vector<RankInfo> ranks() const = 0;

  // Every operation below returns a Request, never null. A request that could not be started is
  // done with an error. `in` and `out` may be the same memory where both have the same size.
  // Counts are elements, sizes bytes; `per rank` lists are indexed by rank in the group.

  // out[i] = reduction over ranks of in[i].
  virtual RequestPtr allreduce(const void* in, void* out, std::size_t count, DType dtype,
                               Reduction reduction, OpOptions options = {}) = 0;
  // As allreduce, at `root` only; `out` is ignored elsewhere.
  virtual RequestPtr reduce(const void* in, void* out, std::size_t count, DType dtype,
                            Reduction reduction, int root, OpOptions options = {}) = 0;
  virtual RequestPtr broadcast(void* data, std::size_t count, DType dtype, int root,
                               OpOptions options = {}) = 0;
  // out[r] receives rank r's `in`; sizes may differ from rank to rank.
  virtual RequestPtr allgather(ConstBytes in, std::vector<Bytes> out, DType dtype,
                               OpOptions options = {}) = 0;
  // out = reduction over ranks of their in[rank()]; sizes may differ from rank to rank.
  virtual RequestPtr reduce_scatter(std::vector<ConstBytes> in, Bytes out, DType dtype,
                                    Reduction reduction, OpOptions options = {}) = 0;
  // in[r] goes to rank r, out[r] comes from rank r.
  virtual RequestPtr alltoall(std::vector<ConstBytes> in, std::vector<Bytes> out, DType dtype,
                              OpOptions options = {}) = 0;
  // `out` is used at `root` only.
  virtual RequestPtr gather(ConstBytes in, std::vector<Bytes> out, DType dtype, int root,
                            OpOptions options = {}) = 0;
  // `in` is used at `root` only.
  virtual RequestPtr scatter(std::vector<ConstBytes> in, Bytes out, DType dtype, int root,
                             OpOptions options = {}) = 0;
  virtual RequestPtr barrier(OpOptions options = {}) = 0;

  // Point to point: matched by (peer, tag) in the order of starting.
  virtual RequestPtr send(ConstBytes data, int to, std::uint32_t tag, OpOptions options = {}) = 0;
  virtual RequestPtr recv(Bytes data, int from, std::uint32_t tag, OpOptions options = {}) = 0;
  virtual RequestPtr recv_any(Bytes data, std::uint32_t tag, OpOptions options = {}) = 0;

  // Memory that every rank of this node has mapped: collectives on it copy less. Null when the
  // arena is full (use ordinary memory then) or no shared memory is in use. The memory stays valid
  // until the last reference is gone, whatever becomes of the communicator. Aligned to 64 bytes.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;

  // Number of the last collective started.
  virtual std::uint64_t sequence() const = 0;
  // The cause, once the communicator has failed; OK before.
  virtual ff::Status health() const = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  // Fails all operations here and tells the other ranks. Idempotent.
  virtual void abort(const std::string& why) = 0;
  // Leaves in good order: waits for operations in flight, then says goodbye. Idempotent.
  virtual void shutdown() = 0;
};

Counters counters();

}  // namespace hfreduce
