// SPDX-License-Identifier: Apache-2.0
//
// Start-up of a communicator:
//
//   1. every rank announces its facts through the store; rank 0 adds a fresh key and the group's id
//   2. every rank reads all facts, and connects to the ranks below it: over a Unix socket to those
//      that run on the same kernel, over TCP to the others
//   3. every rank announces with whom it shares memory, proven by a nonce in the other's segment
//   4. all compute the same layout from that; the lowest rank of each node makes the node's segment
//      for this group and hands its descriptor to its mates
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "hfreduce/bootstrap/facts.h"
#include "hfreduce/engine/communicator_impl.h"
#include "hfreduce/engine/fork_guard.h"
#include "hfreduce/engine/phase.h"
#include "runtime/random.h"

namespace hfreduce {

using ff::Code;
using ff::Status;

namespace {

constexpr std::size_t kDefaultSlotBytes = std::size_t{256} << 10;
constexpr std::size_t kLeastPerMember = 512;
// Between two looks at whether a rank that is waited for still lives.
constexpr std::chrono::milliseconds kLookEvery{200};

class Bootstrap {
 public:
  Bootstrap(std::shared_ptr<Store> store, std::string prefix, int rank, int size, Options options,
            std::shared_ptr<Engine> engine)
      : store_(std::move(store)),
        prefix_(std::move(prefix)),
        rank_(rank),
        size_(size),
        options_(std::move(options)),
        engine_(std::move(engine)),
        deadline_(ff::saturating_add(ff::Clock::now(), options_.timeout)) {}

  Status run(std::shared_ptr<CommunicatorImpl>* out) {
    if (Status s = announce(); !s) return s;
    if (Status s = read_facts(); !s) return s;
    // From here on others may connect and send.
    std::vector<Member> members = known_members();
    comm_ = std::make_shared<CommunicatorImpl>(engine_, facts_[0].group, rank_, size_, options_);
    comm_->set_ids(members);
    engine_->peers().add_group(facts_[0].group, facts_[0].key, comm_);
    Status status = connect(members);
    if (status) status = agree(members);
    if (!status) {
      engine_->peers().remove_group(facts_[0].group);
      return status;
    }
    engine_->attach(comm_);
    *out = comm_;
    return {};
  }

 private:
  std::string key(const char* what, int rank) const {
    return prefix_ + "hfreduce/" + what + "/" + std::to_string(rank);
  }

  std::chrono::milliseconds time_left() const {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - ff::Clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  }

  Status announce() {
    if (size_ > 0xffff) {
      return Status(Code::kInvalidArgument,
                    fmt::format("a group of {} ranks; at most 65535 are possible", size_));
    }
    RankFacts mine;
    PeerTable& peers = engine_->peers();
    mine.id = peers.id();
    mine.host = host_name();
    mine.pid = ::getpid();
    mine.boot_id = boot_id();
    mine.node = options_.node;
    mine.zone = options_.zone;
    mine.shm = options_.shm;
    mine.proof = reinterpret_cast<ControlPage*>(engine_->segment()->data())->proof;
    if (size_ > 1) {
      if (Status s = peers.listen_unix(); !s) return s;
      mine.unix_name = peers.unix_name();
      auto addresses = peers.listen_tcp(options_.interfaces);
      if (!addresses) return addresses.error();
      mine.addresses = *addresses;
    }
    if (rank_ == 0) {
      mine.group = ff::random_u64() | 1;
      ff::fill_random(mine.key.data(), mine.key.size());
      mine.algorithm = static_cast<std::uint8_t>(options_.algorithm);
      mine.chunk_bytes = options_.chunk_bytes;
      mine.streams = static_cast<std::uint8_t>(std::max(1, options_.streams));
      mine.native_wire = options_.native_wire;
    }
    return store_->set(key("facts", rank_), mine.encode());
  }

  // A rank that is known to have died will not come: there is no point in waiting for it. Known by
  // this group's own connections, or by those of a group that exists already.
  Status loss() const {
    if (comm_) {
      if (Status lost = comm_->early_loss(); !lost) return lost;
    }
    for (int rank = 0; rank < size_; ++rank) {
      auto index = static_cast<std::size_t>(rank);
      bool named = index < options_.global_ranks.size();
      Status lost = engine_->loss_of(named ? options_.global_ranks[index] : rank);
      if (!lost) return lost;
    }
    return {};
  }

  // Waits for `text` to appear under `key`, for a loss, or for the deadline.
  Status get(const std::string& key, std::string* text) const {
    for (;;) {
      auto patience = std::min<std::chrono::milliseconds>(time_left(), kLookEvery);
      Status status = store_->get(key, patience, text);
      if (status || status.code() != Code::kTimeout || ff::Clock::now() >= deadline_) return status;
      if (Status lost = loss(); !lost) return lost;
    }
  }

  // Reads a record of every rank; names all ranks that have none by the deadline.
  template <typename Record>
  Status read_all(const char* what, std::vector<Record>* out) {
    std::string missing;
    out->resize(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) {
      std::string text;
      Status status = get(key(what, rank), &text);
      if (!status && status.code() == Code::kTimeout) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
        continue;
      }
      if (!status) return status;
      auto record = Record::decode(text);
      if (!record) {
        return Status(record.error().code(),
                      fmt::format("rank {}: {}", rank, record.error().message()));
      }
      (*out)[rank] = std::move(*record);
    }
    if (missing.empty()) return {};
    return Status(
        Code::kTimeout,
        fmt::format("rank {} of group '{}' waited {} ms for the others to start; missing: "
                    "rank {}",
                    rank_, options_.group_name, options_.timeout.count(), missing),
        {{"ranks", missing}});
  }

  Status read_facts() {
    if (Status s = read_all("facts", &facts_); !s) return s;
    std::set<ProcessId> ids;
    for (const RankFacts& facts : facts_) ids.insert(facts.id);
    if (static_cast<int>(ids.size()) != size_) {
      return Status(Code::kInvalidArgument,
                    "two ranks of the group live in one process; each needs its own");
    }
    options_.algorithm = static_cast<Algorithm>(facts_[0].algorithm);
    options_.chunk_bytes = facts_[0].chunk_bytes;
    options_.streams = facts_[0].streams;
    options_.native_wire = facts_[0].native_wire;
    return {};
  }

  std::vector<Member> known_members() const {
    std::vector<Member> members(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) {
      members[rank].id = facts_[rank].id;
      members[rank].host = facts_[rank].host;
      members[rank].pid = facts_[rank].pid;
    }
    members[rank_].path = "self";
    return members;
  }

  bool may_share_memory(int rank) const {
    const RankFacts& other = facts_[rank];
    const RankFacts& mine = facts_[rank_];
    return mine.shm && other.shm && other.boot_id == mine.boot_id && other.node == mine.node;
  }

  // Both of a pair would come to the same decision, but only proof counts: a Unix socket may not be
  // reachable from another network namespace.
  Status connect(std::vector<Member>& members) {
    enter_phase(Phase::kRendezvous);
    PeerTable& peers = engine_->peers();
    std::uint64_t group = facts_[0].group;
    RankLinks links;
    for (int rank = 0; rank < rank_ && links.failure.empty(); ++rank) {
      const RankFacts& other = facts_[rank];
      auto known = peers.find(other.id);
      if (known && known->local) continue;
      if (may_share_memory(rank)) {
        Status status = peers.connect_unix(group, other.id, other.unix_name, deadline_);
        if (status) continue;
        if (status.code() == Code::kRefused) {
          links.failure = fmt::format("rank {}: {}", rank, status.message());
          break;
        }
      }
      for (int stream = 0; stream < options_.streams && links.failure.empty(); ++stream) {
        if (known && known->streams[stream]) continue;
        Status status = peers.connect_tcp(group, other.id, reachable(other),
                                          static_cast<std::uint8_t>(stream), deadline_);
        if (!status) links.failure = fmt::format("rank {}: {}", rank, status.message());
      }
    }
    if (links.failure.empty()) links.failure = wait_for_peers(members, &links.shares);
    links.shares.push_back(rank_);
    if (Status s = store_->set(key("links", rank_), links.encode()); !s) return s;
    if (!links.failure.empty()) {
      return Status(Code::kIo, fmt::format("rank {} ({}) could not connect to {}", rank_,
                                           facts_[rank_].host, links.failure));
    }
    return {};
  }

  // The other's addresses, the likeliest first: those that share the longest prefix with one of
  // ours. Loopback only leads to a process of this kernel.
  std::vector<std::string> reachable(const RankFacts& other) const {
    std::vector<std::pair<int, std::string>> ranked;
    for (const std::string& text : other.addresses) {
      auto theirs = ff::Address::ip(text.substr(0, text.find('|')), 0);
      if (!theirs) continue;
      if (theirs->is_loopback() && other.boot_id != facts_[rank_].boot_id) continue;
      int best = 0;
      for (const std::string& own : facts_[rank_].addresses) {
        auto ours = ff::Address::ip(own.substr(0, own.find('|')), 0);
        if (ours) best = std::max(best, ours->common_prefix(*theirs));
      }
      if (theirs->is_loopback()) best = 0;
      ranked.emplace_back(-best, text);
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> addresses;
    for (auto& [rank, text] : ranked) addresses.push_back(std::move(text));
    return addresses;
  }

  // Those above this rank connect to it. Returns what went wrong.
  std::string wait_for_peers(std::vector<Member>& members, std::vector<std::int32_t>* shares) {
    PeerTable& peers = engine_->peers();
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      enter_phase(Phase::kRendezvous);
      std::shared_ptr<Peer> peer;
      while (!peer && ff::Clock::now() < deadline_) {
        auto patience = std::min(deadline_, ff::Clock::now() + kLookEvery);
        peer = peers.wait_for(facts_[rank].id, patience,
                              [&](const Peer& p) { return p.is_connected(options_.streams); });
        if (peer) break;
        if (Status lost = loss(); !lost) return lost.message();
      }
      if (!peer) return fmt::format("rank {}, which did not connect in time", rank);
      if (peer->lost.load()) return fmt::format("rank {}, which has died", rank);
      members[rank].peer = peer;
      bool proven =
          peer->local && may_share_memory(rank) && peer->control()->proof == facts_[rank].proof;
      if (proven) shares->push_back(rank);
      members[rank].path = proven ? "shm" : peer->main_conn()->name();
    }
    return {};
  }

  Status agree(std::vector<Member>& members) {
    std::vector<RankLinks> links;
    enter_phase(Phase::kRendezvous);
    if (Status s = read_all("links", &links); !s) return s;
    std::vector<std::vector<int>> shares;
    std::vector<std::string> zones;
    for (int rank = 0; rank < size_; ++rank) {
      if (!links[rank].failure.empty()) {
        return Status(Code::kIo, fmt::format("rank {} ({}) could not connect to {}", rank,
                                             facts_[rank].host, links[rank].failure));
      }
      shares.emplace_back(links[rank].shares.begin(), links[rank].shares.end());
      zones.push_back(facts_[rank].zone);
    }
    Layout layout = build_layout(shares, zones);
    const std::vector<int>& mates = layout.nodes[layout.node_of[rank_]];
    engine_->note_local_ranks(
        static_cast<int>(std::count_if(facts_.begin(), facts_.end(), [&](const RankFacts& facts) {
          return facts.boot_id == facts_[rank_].boot_id;
        })));
    std::unique_ptr<Team> team;
    if (mates.size() > 1) {
      auto made = make_team(members, mates, layout.local_of[rank_], slot_bytes(layout));
      if (!made) return made.error();
      team = std::move(*made);
    }
    for (const Member& member : members) {
      ff::log(ff::LogLevel::kInfo, "group '{}' rank {}: host {} pid {} by {}", options_.group_name,
              &member - members.data(), member.host, member.pid, member.path);
    }
    const std::size_t slot = slot_bytes(layout);
    comm_->open(members, std::move(layout), std::move(team), slot);
    return {};
  }

  // The same for all nodes. A slot must hold a few lines for every member.
  std::size_t slot_bytes(const Layout& layout) const {
    std::size_t most = 0;
    for (const auto& node : layout.nodes) most = std::max(most, node.size());
    std::size_t wanted = options_.chunk_bytes != 0 ? options_.chunk_bytes : kDefaultSlotBytes;
    return (std::max(wanted, most * kLeastPerMember) + 63) / 64 * 64;
  }

  ff::Result<std::unique_ptr<Team>> make_team(const std::vector<Member>& members,
                                              const std::vector<int>& mates, int local,
                                              std::size_t slot) {
    int count = static_cast<int>(mates.size());
    std::size_t bytes = Team::segment_bytes(count, slot);
    std::shared_ptr<Segment> segment;
    if (local == 0) {
      auto made = Segment::create("hfreduce-group", bytes);
      if (!made) return ff::fail(made.error());
      segment = std::move(*made);
      for (int mate : mates) {
        if (mate == rank_) continue;
        FrameHeader header;
        header.type = FrameType::kGroupSegment;
        header.group = facts_[0].group;
        header.rank = static_cast<std::uint16_t>(rank_);
        Conn* conn = members[mate].peer->main_conn();
        conn->enqueue(header, nullptr, nullptr, {segment->fd()});
        conn->flush();
      }
    } else {
      auto fd = comm_->wait_for_group_segment(deadline_);
      if (!fd) {
        return ff::fail(Code::kTimeout,
                        fmt::format("rank {} did not hand over the node's shared memory in time",
                                    mates.front()));
      }
      auto mapped = Segment::map(std::move(*fd), bytes);
      if (!mapped) return ff::fail(mapped.error());
      segment = std::move(*mapped);
    }
    segment->drop_fd();
    return std::make_unique<Team>(std::move(segment), count, local, slot);
  }

  const std::shared_ptr<Store> store_;
  const std::string prefix_;
  const int rank_;
  const int size_;
  Options options_;
  const std::shared_ptr<Engine> engine_;
  const ff::TimePoint deadline_;
  std::vector<RankFacts> facts_;
  std::shared_ptr<CommunicatorImpl> comm_;
};

}  // namespace

Status Communicator::create(std::shared_ptr<Store> store, const std::string& prefix, int rank,
                            int size, const Options& options, std::shared_ptr<Communicator>* out,
                            std::shared_ptr<Engine> engine) {
  if (in_forked_child()) {
    return Status(Code::kAborted,
                  "this process was forked from one that uses hfreduce; start it "
                  "by spawn instead");
  }
  if (size < 1 || rank < 0 || rank >= size) {
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} of {}: ranks go from 0 to size - 1", rank, size));
  }
  if (options.chunk_bytes > kMostChunkBytes) {
    return Status(Code::kInvalidArgument, fmt::format("chunk_bytes is {}; at most {} are possible",
                                                      options.chunk_bytes, kMostChunkBytes));
  }
  if (!engine) {
    auto shared = Engine::shared(options.arena_bytes);
    if (!shared) return shared.error();
    engine = std::move(*shared);
  }
  std::shared_ptr<CommunicatorImpl> impl;
  Bootstrap bootstrap(std::move(store), prefix, rank, size, options, engine);
  if (Status status = bootstrap.run(&impl); !status) {
    return status.with("group", options.group_name);
  }
  // Operations in flight keep the implementation; the user's last reference ends the group.
  *out = std::shared_ptr<Communicator>(impl.get(), [impl, engine](Communicator*) mutable {
    if (!in_forked_child()) {
      impl->shutdown();
      impl->leave();
    }
    impl.reset();
    engine.reset();
  });
  return {};
}

}  // namespace hfreduce
