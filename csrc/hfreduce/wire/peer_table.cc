// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/wire/peer_table.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "hfreduce/engine/fork_guard.h"
#include "net/socket.h"
#include "runtime/fence.h"
#include "runtime/random.h"

namespace hfreduce {

using ff::Code;
using ff::Status;

namespace {
constexpr auto kHeartbeatEvery = std::chrono::seconds(1);
}  // namespace

void Peer::ring_if_armed() const {
  ff::full_fence();
  if (control()->armed.load(std::memory_order_relaxed) == 0) return;
  std::uint64_t one = 1;
  // A full counter means that the bell rings already.
  [[maybe_unused]] ssize_t wrote = ::write(doorbell.get(), &one, sizeof(one));
}

PeerTable::PeerTable(ProcessId id, std::shared_ptr<Segment> own_segment, int own_doorbell,
                     FdWatcher* watcher)
    : id_(id), segment_(std::move(own_segment)), doorbell_(own_doorbell), watcher_(watcher) {}

PeerTable::~PeerTable() {
  for (auto& [id, listener] : listeners_) untrack_fd(listener.fd.get());
  for (auto& [id, conn] : conns_) untrack_fd(conn->fd());
}

Status PeerTable::listen_unix() {
  std::lock_guard lock(mu_);
  if (!unix_name_.empty()) return {};
  std::string name = "hfreduce-";
  for (std::uint8_t byte : id_) {
    constexpr char kHex[] = "0123456789abcdef";
    name += kHex[byte >> 4];
    name += kHex[byte & 15];
  }
  ff::Address address = ff::Address::abstract_unix(name);
  auto fd = ff::listen_on(&address);
  if (!fd) return fd.error();
  unix_name_ = name;
  std::uint64_t id = next_id_++;
  track_fd(fd->get());
  watcher_->watch(id, fd->get());
  listeners_.emplace(id, Listener{std::move(*fd), address, "unix"});
  return {};
}

ff::Result<std::vector<std::string>> PeerTable::listen_tcp(const std::string& interfaces) {
  std::lock_guard lock(mu_);
  if (auto known = announced_.find(interfaces); known != announced_.end()) return known->second;
  auto usable = ff::usable_interfaces(interfaces);
  if (!usable) return ff::fail(usable.error());
  std::vector<std::string> addresses;
  Status last;
  for (const ff::Interface& interface : *usable) {
    ff::Address address = interface.address;
    auto fd = ff::listen_on(&address);
    if (!fd) {
      last = fd.error();  // an address that is still tentative, say; others may do
      continue;
    }
    addresses.push_back(address.host() + "|" + std::to_string(address.port()));
    std::uint64_t id = next_id_++;
    track_fd(fd->get());
    watcher_->watch(id, fd->get());
    listeners_.emplace(id, Listener{std::move(*fd), address, interface.name});
  }
  if (addresses.empty()) return ff::fail(last);
  announced_[interfaces] = addresses;
  return addresses;
}

void PeerTable::add_group(std::uint64_t group, const GroupKey& key, std::weak_ptr<GroupPort> port) {
  std::lock_guard lock(mu_);
  groups_[group] = Group{key, std::move(port)};
  // Those that greeted before this rank knew of the group have been waiting for this.
  for (auto& [conn, pending] : pending_) {
    if (!pending.greeted || pending.finished || pending.hello.group != group) continue;
    pending.greeted = false;
    if (Status status = answer_hello(pending); !status) refuse(*pending.conn, status);
  }
}

void PeerTable::remove_group(std::uint64_t group) {
  std::lock_guard lock(mu_);
  groups_.erase(group);
}

std::shared_ptr<Conn> PeerTable::add_conn(ff::UniqueFd fd, bool is_unix, std::string name) {
  auto conn = std::make_shared<Conn>(std::move(fd), is_unix, std::move(name), this);
  std::uint64_t id = next_id_++;
  conns_[id] = conn;
  conn_ids_[conn.get()] = id;
  track_fd(conn->fd());
  watcher_->watch(id, conn->fd());
  return conn;
}

void PeerTable::accept_all(const Listener& listener) {
  for (;;) {
    auto fd = ff::accept_from(listener.fd.get());
    if (!fd) {
      ff::log(ff::LogLevel::kWarn, "{}", fd.error().message());
      return;
    }
    if (!*fd) return;
    bool is_unix = listener.address.is_unix();
    ff::tune_stream(fd->get(), is_unix);
    std::lock_guard lock(mu_);
    if (closing_) return;
    auto conn = add_conn(std::move(*fd), is_unix,
                         "a process that connected to " + listener.address.to_string());
    Pending& pending = pending_[conn.get()];
    pending.conn = conn;
    pending.deadline = ff::coarse_now() + std::chrono::seconds(30);
  }
}

std::shared_ptr<Peer> PeerTable::find(const ProcessId& id) {
  std::lock_guard lock(mu_);
  auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second;
}

std::shared_ptr<Peer> PeerTable::wait_for(const ProcessId& to, ff::TimePoint deadline,
                                          const std::function<bool(const Peer&)>& ready) {
  std::unique_lock lock(mu_);
  std::shared_ptr<Peer> peer;
  auto satisfied = [&] {
    auto found = peers_.find(to);
    if (found == peers_.end()) return false;
    peer = found->second;
    return peer->lost.load() || ready(*peer);
  };
  if (!changed_.wait_until(lock, deadline, satisfied)) return nullptr;
  return peer;
}

void PeerTable::handle_event(std::uint64_t id, bool readable, bool writable) {
  std::shared_ptr<Conn> conn;
  const Listener* listener = nullptr;
  {
    std::lock_guard lock(mu_);
    if (auto found = conns_.find(id); found != conns_.end()) {
      conn = found->second;
    } else if (auto other = listeners_.find(id); other != listeners_.end()) {
      listener = &other->second;  // listeners live as long as the table
    }
  }
  if (listener != nullptr) accept_all(*listener);
  if (!conn) return;
  if (writable) conn->flush();
  if (readable) conn->pump();
}

void PeerTable::tick(ff::TimePoint now) {
  std::vector<std::shared_ptr<Conn>> late;
  std::vector<std::shared_ptr<Conn>> beating;
  {
    std::lock_guard lock(mu_);
    for (auto& [conn, pending] : pending_) {
      if (!pending.finished && pending.role == Role::kAcceptor && now > pending.deadline) {
        late.push_back(pending.conn);
      }
    }
    if (now >= next_heartbeat_) {
      next_heartbeat_ = now + kHeartbeatEvery;
      for (auto& [id, conn] : conns_) {
        if (!conn->is_unix() && conn->authenticated.load()) beating.push_back(conn);
      }
    }
  }
  for (auto& conn : late) conn->close(Status(Code::kTimeout, "no handshake within 30 s"));
  FrameHeader beat;
  beat.type = FrameType::kHeartbeat;
  for (auto& conn : beating) {
    // A connection that is stuck has enough to send already.
    if (conn->has_unsent()) continue;
    conn->enqueue(beat, nullptr, nullptr);
    conn->flush();
  }
}

void PeerTable::close_all(std::chrono::milliseconds linger) {
  std::vector<std::shared_ptr<Conn>> conns;
  {
    std::lock_guard lock(mu_);
    closing_ = true;
    for (auto& [id, conn] : conns_) conns.push_back(conn);
  }
  for (auto& conn : conns) conn->finish_sending();
  auto deadline = ff::Clock::now() + linger;
  for (auto& conn : conns) {
    while (!conn->is_lost() && ff::Clock::now() < deadline) {
      conn->flush();
      if (!conn->pump()) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    conn->close(Status(Code::kAborted, "this process has left"));
  }
}

// ---- frames ------------------------------------------------------------------------------------

std::shared_ptr<GroupPort> PeerTable::port_of(const Conn& conn, const FrameHeader& header) {
  std::shared_ptr<GroupPort> port;
  std::shared_ptr<Peer> peer;
  {
    std::lock_guard lock(mu_);
    auto found = groups_.find(header.group);
    if (found == groups_.end()) return nullptr;
    port = found->second.port.lock();
    peer = conn.peer;
  }
  // A process may speak for itself only, whatever rank it writes into its frames.
  if (!port || !peer || !port->is_member(header.rank, *peer)) return nullptr;
  return port;
}

Sink PeerTable::bulk_begins(Conn& conn, const FrameHeader& header) {
  auto port = port_of(conn, header);
  return port ? port->bulk_begins(&conn, header) : Sink{};
}

void PeerTable::bulk_arrived(Conn& conn, const FrameHeader& header, Sink sink) {
  if (auto port = port_of(conn, header)) port->bulk_arrived(header, std::move(sink));
}

Status PeerTable::control_arrived(Conn& conn, const FrameHeader& header, std::string payload,
                                  std::vector<ff::UniqueFd> fds) {
  switch (header.type) {
    case FrameType::kHello:
    case FrameType::kChallenge:
    case FrameType::kAuth:
    case FrameType::kWelcome:
    case FrameType::kRefuse:
      return handshake_frame(conn, header, payload);
    case FrameType::kSegment:
      return adopt_segment(conn, payload, std::move(fds));
    case FrameType::kHeartbeat:
      return {};
    default:
      if (auto port = port_of(conn, header)) {
        port->control_arrived(header, std::move(payload), std::move(fds));
      }
      return {};
  }
}

void PeerTable::conn_lost(Conn& conn, const Status& why) {
  std::shared_ptr<Conn> keep;
  std::shared_ptr<Peer> peer;
  std::vector<std::shared_ptr<GroupPort>> ports;
  watcher_->unwatch(conn.fd());
  {
    std::lock_guard lock(mu_);
    auto id = conn_ids_.find(&conn);
    if (id == conn_ids_.end()) return;
    keep = conns_[id->second];
    conns_.erase(id->second);
    conn_ids_.erase(id);
    untrack_fd(conn.fd());
    if (auto found = pending_.find(&conn); found != pending_.end()) {
      if (!found->second.finished) {
        ff::log(ff::LogLevel::kWarn, "handshake failed: {}", why.message());
        finish(found->second, why);
      }
      if (found->second.role == Role::kAcceptor) pending_.erase(found);
    }
    peer = std::move(conn.peer);
    if (peer && !closing_) {
      for (auto& [group, entry] : groups_) {
        if (auto port = entry.port.lock()) ports.push_back(std::move(port));
      }
    }
    if (peer) {
      {
        std::lock_guard peer_lock(peer->mu);
        if (peer->why_lost.ok()) peer->why_lost = why;
      }
      peer->lost.store(true);
      // The process is gone for good: its id is never used again.
      peers_.erase(peer->id);
    }
    changed_.notify_all();
  }
  for (auto& port : ports) port->peer_lost(*peer, why);
}

void PeerTable::wants_write(Conn& conn, bool wanted) {
  // conn_ids_ is not consulted: this is called with a lock of the Conn held, and ids are looked up
  // by descriptor in the watcher.
  watcher_->watch_writes(0, conn.fd(), wanted);
}

}  // namespace hfreduce
