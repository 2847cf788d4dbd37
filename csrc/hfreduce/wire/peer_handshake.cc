// SPDX-License-Identifier: Apache-2.0
//
// The handshake half of PeerTable.
#include <cstring>

#include "base/bytes.h"
#include "base/log.h"
#include "hfreduce/wire/peer_table.h"
#include "net/socket.h"
#include "runtime/random.h"

namespace hfreduce {

using ff::Code;
using ff::Status;

namespace {

void send_frame(Conn& conn, FrameType type, const std::string& payload,
                const std::vector<int>& fds = {}) {
  FrameHeader header;
  header.type = type;
  header.length = payload.size();
  conn.enqueue(header, payload.data(), nullptr, fds);
  conn.flush();
}

}  // namespace

Status PeerTable::connect_unix(std::uint64_t group, const ProcessId& to, const std::string& name,
                               ff::TimePoint deadline) {
  ff::Address address = ff::Address::abstract_unix(name);
  auto fd = ff::connect_to(address, std::chrono::milliseconds(1000));
  if (!fd) return fd.error();
  Hello hello;
  hello.group = group;
  return shake_hands(std::move(*fd), true, address.to_string(), hello, to, deadline);
}

Status PeerTable::connect_tcp(std::uint64_t group, const ProcessId& to,
                              const std::vector<std::string>& addresses, std::uint8_t stream,
                              ff::TimePoint deadline) {
  Status last(Code::kInvalidArgument, "the peer announced no address");
  std::string tried;
  for (const std::string& text : addresses) {
    auto bar = text.find('|');
    if (bar == std::string::npos) continue;
    int port = std::atoi(text.c_str() + bar + 1);
    auto address = ff::Address::ip(text.substr(0, bar), static_cast<std::uint16_t>(port));
    if (!address) continue;
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - ff::Clock::now());
    if (left.count() <= 0) break;
    auto fd = ff::connect_to(*address, std::min(left, std::chrono::milliseconds(3000)));
    if (!fd) {
      tried += "; " + fd.error().message();
      last = fd.error();
      continue;
    }
    Hello hello;
    hello.group = group;
    hello.stream = stream;
    return shake_hands(std::move(*fd), false, address->to_string(), hello, to, deadline);
  }
  return Status(last.code(), "no address of the peer could be reached" + tried +
                                 "; name the right interface in HFREDUCE_SOCKET_IFNAME");
}

Status PeerTable::shake_hands(ff::UniqueFd fd, bool is_unix, std::string name, const Hello& hello,
                              const ProcessId& to, ff::TimePoint deadline) {
  std::unique_lock lock(mu_);
  if (closing_) return Status(Code::kAborted, "this process is leaving");
  auto conn = add_conn(std::move(fd), is_unix, std::move(name));
  Pending& pending = pending_[conn.get()];
  pending.conn = conn;
  pending.role = Role::kConnector;
  pending.hello = hello;
  pending.hello.id = id_;
  ff::fill_random(pending.hello.nonce.data(), pending.hello.nonce.size());
  pending.challenge.id = to;
  pending.deadline = deadline;
  send_frame(*conn, FrameType::kHello, encode(pending.hello));
  // The engine's thread pumps; this one only waits.
  bool done = changed_.wait_until(lock, deadline, [&] { return pending.finished; });
  Status outcome = done ? pending.outcome
                        : Status(Code::kTimeout, conn->name() + " did not finish the handshake");
  pending_.erase(conn.get());
  lock.unlock();
  if (!outcome) conn->close(outcome);
  return outcome;
}

Status PeerTable::handshake_frame(Conn& conn, const FrameHeader& header,
                                  const std::string& payload) {
  std::lock_guard lock(mu_);
  auto found = pending_.find(&conn);
  if (found == pending_.end() || found->second.finished) {
    return Status(Code::kRefused, conn.name() + " sent a greeting out of turn");
  }
  Pending& pending = found->second;
  bool acceptor = pending.role == Role::kAcceptor;
  Status status;
  if (acceptor && header.type == FrameType::kHello && pending.hello.group == 0) {
    auto hello = decode_hello(payload);
    if (hello) {
      pending.hello = *hello;
      status = answer_hello(pending);
    } else {
      status = hello.error();
    }
  } else if (!acceptor && header.type == FrameType::kChallenge) {
    status = check_challenge(pending, payload);
  } else if (acceptor && header.type == FrameType::kAuth) {
    status = check_auth(pending, payload);
  } else if (!acceptor && header.type == FrameType::kWelcome) {
    adopt(pending, pending.challenge.id);
  } else if (header.type == FrameType::kRefuse) {
    return Status(Code::kRefused, conn.name() + " refused: " + payload);
  } else {
    status = Status(Code::kRefused, "a greeting out of turn");
  }
  if (!status) refuse(conn, status);
  return status;
}

Status PeerTable::answer_hello(Pending& pending) {
  auto group = groups_.find(pending.hello.group);
  if (group == groups_.end()) {
    pending.greeted = true;  // answered by add_group()
    return {};
  }
  Challenge& challenge = pending.challenge;
  challenge.id = id_;
  ff::fill_random(challenge.nonce.data(), challenge.nonce.size());
  challenge.mac = handshake_mac(group->second.key, Role::kAcceptor, pending.hello.group,
                                pending.hello.id, id_, pending.hello.nonce, challenge.nonce);
  send_frame(*pending.conn, FrameType::kChallenge, encode(challenge));
  return {};
}

Status PeerTable::check_challenge(Pending& pending, const std::string& payload) {
  auto challenge = decode_challenge(payload);
  if (!challenge) return challenge.error();
  auto group = groups_.find(pending.hello.group);
  if (group == groups_.end()) return Status(Code::kRefused, "the group has gone");
  if (challenge->id != pending.challenge.id) {
    return Status(Code::kRefused, "another process answers at that address");
  }
  ff::Digest expected = handshake_mac(group->second.key, Role::kAcceptor, pending.hello.group, id_,
                                      challenge->id, pending.hello.nonce, challenge->nonce);
  if (!ff::equal_constant_time(expected, challenge->mac)) {
    return Status(Code::kRefused, "wrong key: the peer does not belong to this group");
  }
  ff::Digest mac = handshake_mac(group->second.key, Role::kConnector, pending.hello.group, id_,
                                 challenge->id, pending.hello.nonce, challenge->nonce);
  pending.challenge.nonce = challenge->nonce;
  send_frame(*pending.conn, FrameType::kAuth,
             std::string(reinterpret_cast<const char*>(mac.data()), mac.size()));
  return {};
}

Status PeerTable::check_auth(Pending& pending, const std::string& payload) {
  auto group = groups_.find(pending.hello.group);
  if (group == groups_.end()) return Status(Code::kRefused, "the group has gone");
  ff::ByteReader in(payload);
  ff::Digest mac = in.raw<32>();
  ff::Digest expected =
      handshake_mac(group->second.key, Role::kConnector, pending.hello.group, pending.hello.id, id_,
                    pending.hello.nonce, pending.challenge.nonce);
  if (!in.complete() || !ff::equal_constant_time(expected, mac)) {
    return Status(Code::kRefused, "wrong key: the peer does not belong to this group");
  }
  send_frame(*pending.conn, FrameType::kWelcome, "");
  adopt(pending, pending.hello.id);
  return {};
}

// The other end is `who`, proven.
void PeerTable::adopt(Pending& pending, const ProcessId& who) {
  std::shared_ptr<Peer>& peer = peers_[who];
  if (!peer) {
    peer = std::make_shared<Peer>();
    peer->id = who;
  }
  Conn& conn = *pending.conn;
  conn.peer = peer;
  conn.authenticated.store(true, std::memory_order_release);
  // Two groups that form at once may connect twice. The first connection serves; the other stays
  // open, since the peer may have it the other way round.
  if (conn.is_unix()) {
    if (!peer->local) peer->local = pending.conn;
    ff::ByteWriter out;
    out.raw(reinterpret_cast<ControlPage*>(segment_->data())->proof);
    out.number(static_cast<std::uint64_t>(segment_->size()));
    send_frame(conn, FrameType::kSegment, out.take(), {segment_->fd(), doorbell_});
  } else {
    auto& stream = peer->streams[pending.hello.stream];
    if (!stream) stream = pending.conn;
  }
  finish(pending, {});
}

Status PeerTable::adopt_segment(Conn& conn, const std::string& payload,
                                std::vector<ff::UniqueFd> fds) {
  ff::ByteReader in(payload);
  Nonce proof = in.raw<16>();
  auto size = in.number<std::uint64_t>();
  if (!in.complete() || size < kArenaOffset || size > (std::uint64_t{1} << 44)) {
    return Status(Code::kRefused, conn.name() + " announced a malformed segment");
  }
  auto segment = Segment::map(std::move(fds[0]), size);
  if (!segment) {
    ff::log(ff::LogLevel::kWarn, "no shared memory with {}: {}", conn.name(),
            segment.error().message());
    return {};
  }
  (*segment)->drop_fd();
  std::lock_guard lock(mu_);
  auto& page = *reinterpret_cast<ControlPage*>((*segment)->data());
  if (conn.peer && conn.peer->segment) return {};  // known from an earlier connection
  if (page.proof != proof || !conn.peer) {
    return Status(Code::kRefused, conn.name() + " sent a segment that is not its own");
  }
  conn.peer->doorbell = std::move(fds[1]);
  conn.peer->segment = std::move(*segment);
  changed_.notify_all();
  return {};
}

void PeerTable::finish(Pending& pending, Status outcome) {
  pending.finished = true;
  pending.outcome = std::move(outcome);
  changed_.notify_all();
}

void PeerTable::refuse(Conn& conn, const Status& why) {
  send_frame(conn, FrameType::kRefuse, why.message());
}

}  // namespace hfreduce
