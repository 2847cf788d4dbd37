// SPDX-License-Identifier: Apache-2.0
//
// Inbox: how one group's payloads find their places.
//
// A transfer of a collective is named by (sequence of the collective, slot); both sides derive the
// same names. Small payloads travel at once and are kept if they come early, at most kCreditBytes
// from each sender. A large one waits for the receiver's grant, so it is never kept: it goes from
// the sender's memory to the kernel, and from the kernel to its place.
//
// Point-to-point messages are matched by (rank, tag) in order of arrival and of posting, as MPI
// does: small ones travel at once (kEager), large ones are offered (kOffer) and granted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "hfreduce/wire/conn.h"
#include "hfreduce/wire/frame.h"

namespace hfreduce {

inline constexpr std::uint64_t kEagerBytes = 16 << 10;
inline constexpr std::uint64_t kCreditBytes = 1 << 20;
inline constexpr std::uint64_t kEarlyOverhead = 64;  // counted for each kept payload

// A place for a payload. Lives with the operation, and must be cancelled before it dies undone.
struct RecvSlot : Transfer {
  void* data = nullptr;
  std::uint64_t size = 0;
  std::uint32_t signature = 0;  // that the payload must bear; 0: any
  // From; -1 while a message from any source is not matched. Read by diagnoses at any time.
  std::atomic<int> rank{-1};
  Conn* filling = nullptr;  // guarded by the inbox
};

// A payload to send. Lives with the operation, and must be cancelled before it dies undone.
struct SendSlot : Transfer {
  const void* data = nullptr;
  std::uint64_t size = 0;
  int rank = -1;  // to
  FrameHeader header;
  Conn* through = nullptr;  // once it is queued there; guarded by the inbox
};

// Sees the payloads of one group pass, for tests. Called with the inbox's lock held.
class PayloadObserver {
 public:
  virtual ~PayloadObserver() = default;
  virtual void leaves(int to, const FrameHeader& header) = 0;  // given to the connection
  virtual void has_arrived(const FrameHeader& header) = 0;     // all of it
};

class Inbox {
 public:
  // `mismatch` is called, with no lock of the inbox held, when a payload does not fit its place.
  Inbox(std::uint64_t group, int rank, int size,
        std::function<void(int rank, const std::string& what)> mismatch);
  // To be called before anything is posted or sent; payloads may come before. `lanes[r]` lead to
  // rank r; none for this rank. What must keep its order takes the first lane.
  void connect(std::vector<std::vector<Conn*>> lanes);
  // `observer` must outlive the group; null ends it.
  void observe(PayloadObserver* observer);

  // Transfers of collective `sequence`. The slot is done when the payload is there / is sent.
  // A payload that bears another signature is a mismatch.
  void post(int from, std::uint64_t sequence, std::uint64_t slot, std::uint32_t signature,
            void* data, std::uint64_t size, RecvSlot* out);
  void send(int to, std::uint64_t sequence, std::uint64_t slot, const OpDescriptor& op,
            std::uint32_t signature, const void* data, std::uint64_t size, SendSlot* out);

  // Messages; `from` -1: any rank.
  void post_message(int from, std::uint32_t tag, void* data, std::uint64_t size, RecvSlot* out);
  void send_message(int to, std::uint32_t tag, const void* data, std::uint64_t size, SendSlot* out);

  void cancel(RecvSlot* slot);
  void cancel(SendSlot* slot);
  // Writes what post() and send() have queued.
  void flush();

  Sink bulk_begins(Conn* conn, const FrameHeader& header);
  void bulk_arrived(const FrameHeader& header, Sink sink);
  void control_arrived(const FrameHeader& header);

 private:
  struct Key {
    int rank;
    std::uint64_t sequence;
    std::uint64_t slot;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t h = key.sequence * 0x9e3779b97f4a7c15ULL ^ key.slot * 0xd6e8feb86659fd93ULL;
      return static_cast<std::size_t>((h ^ h >> 31) + static_cast<std::uint64_t>(key.rank));
    }
  };
  // A small payload that came before its place was posted.
  struct Early {
    std::vector<std::byte> bytes;
    OpDescriptor op;
    std::uint32_t signature = 0;
    bool complete = false;
    RecvSlot* claimed = nullptr;  // posted while it was still arriving
  };
  struct Message {
    int rank;
    std::uint32_t tag;
    std::uint64_t size;
    std::uint64_t offer;           // id to grant; 0: eager
    std::shared_ptr<Early> early;  // eager
  };
  struct PostedMessage {
    int rank;
    std::uint32_t tag;
    RecvSlot* slot;
  };

  Sink receive_into(RecvSlot* slot, Conn* conn, const FrameHeader& header, std::string* what);
  Sink keep_early(const FrameHeader& header, std::shared_ptr<Early> early);
  std::string take_unasked(const FrameHeader& header);
  bool fits_credit(int to, std::uint64_t size);
  void enqueue(int rank, const FrameHeader& header, SendSlot* payload = nullptr);
  void flush_rank(int rank);
  void enqueue_data(SendSlot* slot);
  void grant(int rank, std::uint64_t sequence, std::uint64_t slot, bool message);
  void consume_credit(int rank, std::uint64_t bytes);
  void take_early(RecvSlot* slot, const std::shared_ptr<Early>& early, int rank, std::string* what);
  std::string match_offer(const FrameHeader& header);

  const std::uint64_t group_;
  const int rank_;
  std::vector<std::vector<Conn*>> lanes_;  // by rank
  const std::function<void(int, const std::string&)> mismatch_;

  mutable std::mutex mu_;
  PayloadObserver* observer_ = nullptr;
  std::unordered_map<Key, RecvSlot*, KeyHash> posted_;
  std::unordered_map<Key, std::shared_ptr<Early>, KeyHash> early_;
  std::unordered_map<Key, SendSlot*, KeyHash> ungranted_;
  std::unordered_set<Key, KeyHash> granted_;     // grants that came before the send
  std::unordered_set<Key, KeyHash> asked_;       // small payloads whose sender is out of credit
  std::vector<std::shared_ptr<Early>> claimed_;  // posted while they were still arriving
  std::list<PostedMessage> posted_messages_;
  std::list<Message> messages_;
  std::unordered_map<Key, RecvSlot*, KeyHash> granted_messages_;  // awaiting their data
  std::unordered_map<Key, SendSlot*, KeyHash> offered_;
  std::uint64_t next_offer_ = 1;
  std::vector<std::uint64_t> in_flight_;  // unasked bytes sent and not consumed, by rank
  std::vector<std::uint64_t> taken_;      // unasked bytes received and not credited, by rank
  std::vector<std::uint64_t> consumed_;   // those of them that are consumed
  std::vector<bool> dirty_;               // ranks with frames that flush() has yet to write
  std::atomic<bool> any_dirty_{false};
};

}  // namespace hfreduce
