// SPDX-License-Identifier: Apache-2.0
//
// Frames: what travels between two processes, over TCP or a Unix socket. A frame is a fixed header
// of 64 bytes, little-endian, and `length` bytes of payload:
//
//    0        4    5    6       8                16               24               32
//    +--------+----+----+-------+----------------+----------------+----------------+
//    | magic  |type|flag| rank  |     group      |    sequence    |      slot      |
//    +--------+----+----+-------+----------------+----------------+----------------+
//    | kind dtype redop - |root |     count      |     length     | signature |  0 |
//    +--------------------+-----+----------------+----------------+-----------+----+
//   32                   36    40               48               56          60   64
//
// Every frame of a collective carries the operation it belongs to, so that a rank that called
// something else is found out at the first frame.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "hfreduce/types.h"

namespace hfreduce {

inline constexpr std::uint32_t kFrameMagic = 0x31524648;  // "HFR1"
inline constexpr std::uint16_t kProtocolVersion = 1;
// Handshake and control payloads are small; anything longer ends the connection.
inline constexpr std::uint64_t kControlLimit = 4096;

enum class FrameType : std::uint8_t {
  kHello = 1,  // handshake, see handshake.h
  kChallenge = 2,
  kAuth = 3,
  kWelcome = 4,
  kRefuse = 5,
  kSegment = 6,       // Unix sockets only: descriptors of the sender's process segment
  kGroupSegment = 7,  // Unix sockets only: descriptor of a group's segment
  kData = 8,          // payload of a collective, or of a granted send
  kGrant = 9,         // the receiver has a place for (sequence, slot)
  kEager = 10,        // a small point-to-point message, unasked
  kOffer = 11,        // a large point-to-point message waits for a grant
  kCredit = 12,       // `count` unasked bytes have been consumed
  kAbort = 13,        // the group has failed; payload: the cause
  kGoodbye = 14,      // the sender leaves the group in good order
  kHeartbeat = 15,
  kQuery = 16,   // what did you call at `sequence`?
  kAnswer = 17,  // payload: a CallRecord
};
inline constexpr std::uint8_t kLastFrameType = 17;

// What a rank called, as compared between ranks.
struct OpDescriptor {
  OpKind kind = OpKind::kNone;
  DType dtype = DType::kBool;
  RedOp redop = RedOp::kSum;
  std::uint8_t reserved = 0;
  std::int32_t root = -1;
  std::uint64_t count = 0;  // elements; 0 where ranks may differ

  bool operator==(const OpDescriptor&) const = default;
  std::string to_string() const;  // "allreduce(float32 sum, 1024 elements)"
};
static_assert(sizeof(OpDescriptor) == 16);

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  FrameType type = FrameType::kHeartbeat;
  std::uint8_t flags = 0;
  std::uint16_t rank = 0;  // the sender's rank in the group
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;
  std::uint64_t slot = 0;
  OpDescriptor op;
  std::uint64_t length = 0;
  std::uint32_t signature = 0;  // of all operations up to this one
  std::uint32_t reserved = 0;
};
static_assert(sizeof(FrameHeader) == 64);
static_assert(std::endian::native == std::endian::little);

// Sixteen random bytes that name a process for as long as it lives: unlike a pid they are never
// reused and mean the same in every container.
using ProcessId = std::array<std::uint8_t, 16>;
std::string to_string(const ProcessId& id);  // the first 8 hex digits

// A signature of a history: that of the operations before, and one more.
std::uint32_t chain_signature(std::uint32_t before, const OpDescriptor& op);

}  // namespace hfreduce
