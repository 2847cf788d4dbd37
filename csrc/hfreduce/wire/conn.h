// SPDX-License-Identifier: Apache-2.0
//
// Conn: one stream socket to one process, carrying frames both ways. Sending never blocks: what the
// kernel does not take stays queued, pointing at the caller's memory. Receiving goes straight into
// the place that the handler names for a frame, so a payload is copied once, by the kernel.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "hfreduce/wire/frame.h"
#include "runtime/clock.h"

namespace hfreduce {

class Conn;
struct Peer;

// A payload on its way; `done` is set, with release order, when its bytes are all there (receiving)
// or all with the kernel (sending). The memory is in use until then, or until it is cancelled.
struct Transfer {
  std::atomic<bool> done{false};
};

// Where the payload of a frame goes. `data` null: it is read and thrown away.
struct Sink {
  void* data = nullptr;
  Transfer* transfer = nullptr;
  std::shared_ptr<void> keep;  // owns `data` where no transfer does
};

// What a Conn asks of its owner. Calls come from the thread that pumps, with the receive lock of
// the Conn held: they may enqueue on any Conn, but must not pump, close or cancel.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // A frame with a bulk payload begins.
  virtual Sink bulk_begins(Conn& conn, const FrameHeader& header) = 0;
  // Its payload is complete. Not called if the sink was cancelled meanwhile.
  virtual void bulk_arrived(Conn& conn, const FrameHeader& header, Sink sink) = 0;
  // A control frame, whole. An error ends the connection.
  virtual ff::Status control_arrived(Conn& conn, const FrameHeader& header, std::string payload,
                                     std::vector<ff::UniqueFd> fds) = 0;
  // The connection has ended. Called once, without a lock of the Conn held.
  virtual void conn_lost(Conn& conn, const ff::Status& why) = 0;
  // Something is queued that the kernel did not take (true), or nothing any more (false).
  virtual void wants_write(Conn& conn, bool wanted) = 0;
};

class Conn : public std::enable_shared_from_this<Conn> {
 public:
  Conn(ff::UniqueFd fd, bool is_unix, std::string name, FrameHandler* handler);

  // Queues a frame. `payload` stays in use until transfer->done; with `transfer` null it is copied.
  // Duplicates of `fds` travel with the frame (Unix sockets only). Nothing is written before
  // flush().
  void enqueue(const FrameHeader& header, const void* payload, Transfer* transfer,
               const std::vector<int>& fds = {});
  // Writes as much as the kernel takes.
  void flush();
  // Reads what is there; true if anything was. Returns at once if another thread is reading.
  bool pump();

  // After these the memory of `transfer` is no longer touched.
  void cancel_receive(const Transfer* transfer);
  void cancel_send(const Transfer* transfer);

  // Ends the connection; conn_lost() follows from this call.
  void close(const ff::Status& why);
  // No more frames will be sent; what is queued still goes out first.
  void finish_sending();
  // In a forked child: lets go of the descriptor without a word to the peer.
  void abandon_in_child();

  int fd() const { return fd_.get(); }
  bool is_unix() const { return is_unix_; }
  bool is_lost() const { return lost_.load(std::memory_order_acquire); }
  bool has_unsent() const { return unsent_.load(std::memory_order_relaxed); }
  const std::string& name() const { return name_; }
  ff::TimePoint last_heard() const {
    return ff::TimePoint(ff::TimePoint::duration(last_heard_.load(std::memory_order_relaxed)));
  }

  // Owned by the handler: who is at the other end, and how far the handshake has come.
  std::shared_ptr<Peer> peer;
  std::atomic<bool> authenticated{false};

 private:
  struct Outgoing {
    FrameHeader header;
    const void* payload = nullptr;
    Transfer* transfer = nullptr;
    std::vector<std::byte> owned;
    std::vector<ff::UniqueFd> fds;
    std::size_t sent = 0;  // of header and payload together
  };
  enum class Phase { kHeader, kControl, kBulk };

  ff::Result<std::size_t> read_some();
  ff::Status parse();
  ff::Status header_complete();
  ff::Status finish_control();
  void finish_bulk();
  void flush_locked();

  ff::UniqueFd fd_;
  const bool is_unix_;
  const std::string name_;
  FrameHandler* const handler_;
  std::atomic<bool> lost_{false};
  std::atomic<bool> unsent_{false};
  std::atomic<std::int64_t> last_heard_{0};

  std::mutex send_mu_;
  std::deque<Outgoing> outgoing_;
  bool finishing_ = false;

  std::mutex receive_mu_;
  std::vector<std::byte> buffer_;  // received and not yet parsed: [begin_, end_)
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  Phase phase_ = Phase::kHeader;
  FrameHeader header_;
  std::string control_;
  Sink sink_;
  std::uint64_t received_ = 0;  // of the payload under way
  bool sink_cancelled_ = false;
  std::deque<ff::UniqueFd> fds_;
};

}  // namespace hfreduce
