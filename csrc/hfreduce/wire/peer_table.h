// SPDX-License-Identifier: Apache-2.0
//
// PeerTable: the connections of this process. It listens, shakes hands, keeps one Peer for each
// process, and hands the frames of a group to that group's port.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "hfreduce/wire/conn.h"
#include "hfreduce/wire/handshake.h"
#include "hfreduce/wire/peer.h"
#include "net/address.h"
#include "runtime/clock.h"

namespace hfreduce {

// A group's end of the wire. Calls come with the receive lock of a Conn held (see FrameHandler).
class GroupPort {
 public:
  virtual ~GroupPort() = default;
  // Is `peer` the process of `rank`?
  virtual bool is_member(int rank, const Peer& peer) const = 0;
  virtual Sink bulk_begins(Conn* conn, const FrameHeader& header) = 0;
  virtual void bulk_arrived(const FrameHeader& header, Sink sink) = 0;
  virtual void control_arrived(const FrameHeader& header, std::string payload,
                               std::vector<ff::UniqueFd> fds) = 0;
  // A process that the group may contain is gone. Called without locks.
  virtual void peer_lost(const Peer& peer, const ff::Status& why) = 0;
};

// Where a PeerTable announces the descriptors to poll.
class FdWatcher {
 public:
  virtual ~FdWatcher() = default;
  virtual void watch(std::uint64_t id, int fd) = 0;
  virtual void watch_writes(std::uint64_t id, int fd, bool wanted) = 0;
  virtual void unwatch(int fd) = 0;
};

class PeerTable : public FrameHandler {
 public:
  PeerTable(ProcessId id, std::shared_ptr<Segment> own_segment, int own_doorbell,
            FdWatcher* watcher);
  ~PeerTable() override;

  const ProcessId& id() const { return id_; }
  const std::string& unix_name() const { return unix_name_; }
  ff::Status listen_unix();
  // Listens on every usable interface (once a filter); the addresses to announce.
  ff::Result<std::vector<std::string>> listen_tcp(const std::string& interfaces);

  // A group whose members may connect from now on.
  void add_group(std::uint64_t group, const GroupKey& key, std::weak_ptr<GroupPort> port);
  void remove_group(std::uint64_t group);

  // Connects to another process of this host, or over TCP to the first of `addresses` that
  // answers, and shakes hands. kRefused carries the peer's reason.
  ff::Status connect_unix(std::uint64_t group, const ProcessId& to, const std::string& name,
                          ff::TimePoint deadline);
  ff::Status connect_tcp(std::uint64_t group, const ProcessId& to,
                         const std::vector<std::string>& addresses, std::uint8_t stream,
                         ff::TimePoint deadline);
  // Waits until `to` has what `ready` asks for; null after `deadline`.
  std::shared_ptr<Peer> wait_for(const ProcessId& to, ff::TimePoint deadline,
                                 const std::function<bool(const Peer&)>& ready);
  std::shared_ptr<Peer> find(const ProcessId& id);

  // The descriptor with `id` is ready.
  void handle_event(std::uint64_t id, bool readable, bool writable);
  // Drops handshakes that take too long; sends heartbeats. Called a few times a second.
  void tick(ff::TimePoint now);
  // Lets everything queued go out, then waits (at most `linger`) for the peers to close as well, so
  // that the kernel does not throw away what they have not read yet.
  void close_all(std::chrono::milliseconds linger);

  Sink bulk_begins(Conn& conn, const FrameHeader& header) override;
  void bulk_arrived(Conn& conn, const FrameHeader& header, Sink sink) override;
  ff::Status control_arrived(Conn& conn, const FrameHeader& header, std::string payload,
                             std::vector<ff::UniqueFd> fds) override;
  void conn_lost(Conn& conn, const ff::Status& why) override;
  void wants_write(Conn& conn, bool wanted) override;

 private:
  struct Group {
    GroupKey key{};
    std::weak_ptr<GroupPort> port;
  };
  struct Listener {
    ff::UniqueFd fd;
    ff::Address address;
    std::string interface;
  };
  // A connection whose other end has not proven itself yet.
  struct Pending {
    std::shared_ptr<Conn> conn;
    Role role = Role::kAcceptor;
    Hello hello;
    Challenge challenge;
    bool greeted = false;  // acceptor: the greeting is there, but its group is not known yet
    bool finished = false;
    ff::Status outcome;
    ff::TimePoint deadline;
  };

  std::shared_ptr<Conn> add_conn(ff::UniqueFd fd, bool is_unix, std::string name);
  void accept_all(const Listener& listener);
  ff::Status shake_hands(ff::UniqueFd fd, bool is_unix, std::string name, const Hello& hello,
                         const ProcessId& to, ff::TimePoint deadline);
  ff::Status handshake_frame(Conn& conn, const FrameHeader& header, const std::string& payload);
  ff::Status answer_hello(Pending& pending);
  ff::Status check_challenge(Pending& pending, const std::string& payload);
  ff::Status check_auth(Pending& pending, const std::string& payload);
  void adopt(Pending& pending, const ProcessId& who);
  ff::Status adopt_segment(Conn& conn, const std::string& payload, std::vector<ff::UniqueFd> fds);
  void finish(Pending& pending, ff::Status outcome);
  void refuse(Conn& conn, const ff::Status& why);
  std::shared_ptr<GroupPort> port_of(const Conn& conn, const FrameHeader& header);

  const ProcessId id_;
  const std::shared_ptr<Segment> segment_;
  const int doorbell_;
  FdWatcher* const watcher_;
  std::string unix_name_;

  std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Listener> listeners_;
  std::map<std::string, std::vector<std::string>> announced_;  // by interface filter
  std::unordered_map<std::uint64_t, std::shared_ptr<Conn>> conns_;
  std::unordered_map<const Conn*, std::uint64_t> conn_ids_;
  std::map<const Conn*, Pending> pending_;
  std::map<ProcessId, std::shared_ptr<Peer>> peers_;
  std::map<std::uint64_t, Group> groups_;
  std::uint64_t next_id_ = 1;
  ff::TimePoint next_heartbeat_{};
  bool closing_ = false;
};

}  // namespace hfreduce
