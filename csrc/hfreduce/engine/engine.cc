// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/engine.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/log.h"
#include "hfreduce/engine/fork_guard.h"
#include "runtime/random.h"

namespace hfreduce {
namespace {

using ff::Status;

constexpr std::uint64_t kDoorbell = 1;
constexpr std::uint64_t kNetwork = 2;
constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kIdleTick = std::chrono::milliseconds(250);
constexpr auto kLinger = std::chrono::milliseconds(2000);
// How long a thread polls without anything moving before it sleeps: about what a switch of context
// costs for the engine's thread, longer for a caller that has nothing else to do.
constexpr auto kEngineSpin = std::chrono::microseconds(20);
constexpr auto kHelperSpin = std::chrono::microseconds(200);
constexpr auto kCrowdedSpin = std::chrono::microseconds(2000);
constexpr int kSpinsPerLook = 64;  // polls between two looks at the clock
constexpr int kSpinsBeforeYield = 1024;

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

Status add_to_epoll(int epoll, int fd, std::uint64_t id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    return ff::errno_status("watch a descriptor", errno);
  }
  return {};
}

int usable_cpus() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

Engine::Engine() : callbacks_(std::make_shared<Callbacks>()) {}

ff::Result<std::shared_ptr<Engine>> Engine::create(std::size_t arena_bytes) {
  // The last user may let go on the engine's own thread, which cannot join itself.
  std::shared_ptr<Engine> engine(new Engine(), [](Engine* dying) {
    if (dying->thread_.get_id() == std::this_thread::get_id()) {
      std::thread([dying] { delete dying; }).detach();
    } else {
      delete dying;
    }
  });
  if (Status status = engine->start(arena_bytes); !status) return ff::fail(status);
  return engine;
}

ff::Result<std::shared_ptr<Engine>> Engine::shared(std::size_t arena_bytes) {
  static std::mutex mu;
  static std::weak_ptr<Engine> instance;
  std::lock_guard lock(mu);
  if (auto engine = instance.lock()) return engine;
  auto engine = create(arena_bytes);
  if (engine) instance = *engine;
  return engine;
}

Status Engine::start(std::size_t arena_bytes) {
  auto segment = Segment::create("hfreduce-process", kArenaOffset + arena_bytes);
  if (!segment) return segment.error();
  segment_ = std::move(*segment);
  track_fd(segment_->fd());
  auto* page = new (segment_->data()) ControlPage{};
  ff::fill_random(page->proof.data(), page->proof.size());
  armed_ = &page->armed;
  arena_ = std::make_shared<Arena>(segment_, kArenaOffset);

  doorbell_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  sleep_epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  network_epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!doorbell_ || !sleep_epoll_ || !network_epoll_) {
    return ff::errno_status("create the engine's descriptors", errno);
  }
  for (int fd : {doorbell_.get(), sleep_epoll_.get(), network_epoll_.get()}) track_fd(fd);
  if (Status s = add_to_epoll(sleep_epoll_.get(), doorbell_.get(), kDoorbell); !s) return s;
  if (Status s = add_to_epoll(sleep_epoll_.get(), network_epoll_.get(), kNetwork); !s) return s;

  ProcessId id;
  ff::fill_random(id.data(), id.size());
  peers_ = std::make_unique<PeerTable>(id, segment_, doorbell_.get(), this);
  thread_ = std::thread([this] { run(); });
  return {};
}

Engine::~Engine() {
  if (in_forked_child()) {
    // The thread is not there to be joined, and the sockets are the parent's.
    thread_.detach();
    static_cast<void>(peers_.release());
    return;
  }
  stop();
}

void Engine::stop() {
  if (thread_.joinable()) {
    stopping_.store(true);
    std::uint64_t one = 1;
    [[maybe_unused]] ssize_t wrote = ::write(doorbell_.get(), &one, sizeof(one));
    thread_.join();
  }
  if (peers_) peers_->close_all(kLinger);
  peers_.reset();
  for (int fd : {doorbell_.get(), sleep_epoll_.get(), network_epoll_.get()}) untrack_fd(fd);
  if (segment_) untrack_fd(segment_->fd());
  callbacks_->stop();
}

void Engine::attach(std::shared_ptr<Group> group) {
  std::lock_guard lock(groups_mu_);
  groups_.push_back(std::move(group));
  groups_version_.fetch_add(1, std::memory_order_release);
}

void Engine::detach(const Group* group) {
  std::shared_ptr<Group> keep;  // dies outside the lock
  std::lock_guard lock(groups_mu_);
  auto found =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& g) { return g.get() == group; });
  if (found == groups_.end()) return;
  keep = std::move(*found);
  groups_.erase(found);
  groups_version_.fetch_add(1, std::memory_order_release);
}

ff::Status Engine::loss_of(int global_rank) {
  std::lock_guard lock(groups_mu_);
  for (const auto& group : groups_) {
    if (Status loss = group->loss_of(global_rank); !loss) return loss;
  }
  return {};
}

void Engine::note_local_ranks(int ranks) {
  if (ranks > usable_cpus()) oversubscribed_.store(true, std::memory_order_relaxed);
}

// ---- waiting -----------------------------------------------------------------------------------

void Engine::arm() {
  armed_->store(1, std::memory_order_seq_cst);
  if (!network_watched_.load(std::memory_order_relaxed)) set_network_watch(true);
}

void Engine::set_network_watch(bool on) {
  std::lock_guard lock(watch_mu_);
  if (network_watched_.load(std::memory_order_relaxed) == on) return;
  network_watched_.store(on, std::memory_order_relaxed);
  epoll_event event{};
  event.events = on ? std::uint32_t{EPOLLIN} : 0;
  event.data.u64 = kNetwork;
  ::epoll_ctl(sleep_epoll_.get(), EPOLL_CTL_MOD, network_epoll_.get(), &event);
}

void Engine::ensure_driven(Group& group) {
  if (helpers_.load(std::memory_order_seq_cst) > 0) return;
  arm();
  // What arrived before `armed` was set rang no bell.
  while (group.poll()) {
  }
}

bool Engine::help_until(Group& group, DoneFlag& flag, ff::TimePoint deadline,
                        const std::function<bool()>* interrupted) {
  if (flag.done()) return true;
  const bool network = group.networked();
  const bool crowded = oversubscribed_.load(std::memory_order_relaxed);
  const auto spin = crowded ? kCrowdedSpin : kHelperSpin;
  helpers_.fetch_add(1, std::memory_order_seq_cst);
  if (network) network_helpers_.fetch_add(1, std::memory_order_seq_cst);
  armed_->store(0, std::memory_order_relaxed);
  bool done = false;
  int spins = 0;
  ff::TimePoint idle_since{};
  for (;;) {
    bool moved = group.poll();
    if (network && !moved) moved = pump_network();
    if (flag.done()) {
      done = true;
      break;
    }
    if (moved) {
      spins = 0;
      idle_since = {};
      continue;
    }
    ++spins;
    if (spins % kSpinsPerLook != 0 && !crowded) {
      cpu_relax();
      continue;
    }
    // The others must not starve while this thread has the engine to itself.
    poll_groups();
    auto now = ff::Clock::now();
    if (now >= deadline || (interrupted != nullptr && (*interrupted)())) break;
    if (idle_since == ff::TimePoint{}) idle_since = now;
    if (now - idle_since < spin) {
      if (crowded || spins >= kSpinsBeforeYield) ::sched_yield();
      continue;
    }
    // Sleep, and leave the driving to the engine's thread.
    helpers_.fetch_sub(1, std::memory_order_seq_cst);
    if (network) network_helpers_.fetch_sub(1, std::memory_order_seq_cst);
    ensure_driven(group);
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now) +
                std::chrono::milliseconds(1);
    flag.sleep(std::min<std::chrono::milliseconds>(left, kTick));
    helpers_.fetch_add(1, std::memory_order_seq_cst);
    if (network) network_helpers_.fetch_add(1, std::memory_order_seq_cst);
    armed_->store(0, std::memory_order_relaxed);
  }
  int others = helpers_.fetch_sub(1, std::memory_order_seq_cst) - 1;
  if (network) network_helpers_.fetch_sub(1, std::memory_order_seq_cst);
  if (others == 0) {
    bool pending = group.busy();
    if (!pending && groups_version_.load(std::memory_order_relaxed) > 1) {
      std::lock_guard lock(groups_mu_);
      pending =
          std::any_of(groups_.begin(), groups_.end(), [](const auto& g) { return g->busy(); });
    }
    if (pending) {
      arm();
      poll_groups();
    }
  }
  return done;
}

// ---- the engine's thread -----------------------------------------------------------------------

bool Engine::poll_groups() {
  // A copy, since poll() may end in a group's last reference; kept while nothing changes.
  thread_local std::vector<std::shared_ptr<Group>> groups;
  groups.clear();
  {
    std::lock_guard lock(groups_mu_);
    for (const auto& group : groups_) {
      if (group->busy()) groups.push_back(group);
    }
  }
  bool moved = false;
  for (const auto& group : groups) moved |= group->poll();
  groups.clear();
  return moved;
}

bool Engine::pump_network() {
  std::array<epoll_event, 32> events;
  int ready = ::epoll_wait(network_epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < ready; ++i) {
    peers_->handle_event(events[i].data.u64,
                         (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0,
                         (events[i].events & EPOLLOUT) != 0);
  }
  return ready > 0;
}

void Engine::run() {
  ::pthread_setname_np(::pthread_self(), "hfr-engine");
  ff::TimePoint idle_since{};
  ff::TimePoint next_tick{};
  bool woken = true;
  while (!stopping_.load(std::memory_order_acquire)) {
    const bool helped = helpers_.load(std::memory_order_seq_cst) > 0;
    // With a helper about, one look after each wake-up is enough.
    bool moved = (!helped || woken) && poll_groups();
    if (network_helpers_.load(std::memory_order_relaxed) == 0) moved |= pump_network();
    woken = false;
    auto now = ff::Clock::now();
    if (now >= next_tick) {
      std::vector<std::shared_ptr<Group>> groups;
      {
        std::lock_guard lock(groups_mu_);
        groups = groups_;
      }
      for (const auto& group : groups) group->tick(now);
      peers_->tick(now);
      next_tick = now + kTick;
    }
    bool pending = false;
    {
      std::lock_guard lock(groups_mu_);
      pending =
          std::any_of(groups_.begin(), groups_.end(), [](const auto& g) { return g->busy(); });
    }
    if (moved) {
      idle_since = {};
      continue;
    }
    if (pending && !helped) {
      if (idle_since == ff::TimePoint{}) idle_since = now;
      if (now - idle_since < kEngineSpin && !oversubscribed_.load(std::memory_order_relaxed)) {
        cpu_relax();
        continue;
      }
      armed_->store(1, std::memory_order_seq_cst);
      if (poll_groups()) continue;
    }
    idle_since = {};
    if (network_helpers_.load() == 0) set_network_watch(true);
    std::array<epoll_event, 2> events;
    auto longest = pending ? kTick : kIdleTick;
    int ready = ::epoll_wait(sleep_epoll_.get(), events.data(), events.size(),
                             static_cast<int>(longest.count()));
    if (helpers_.load(std::memory_order_seq_cst) == 0) {
      armed_->store(0, std::memory_order_relaxed);
    }
    for (int i = 0; i < ready; ++i) {
      if (events[i].data.u64 == kDoorbell) {
        std::uint64_t rings = 0;
        [[maybe_unused]] ssize_t got = ::read(doorbell_.get(), &rings, sizeof(rings));
        woken = true;
      } else if (network_helpers_.load() > 0) {
        set_network_watch(false);  // the helper reads the sockets itself
      } else {
        pump_network();
        woken = true;
      }
    }
  }
}

void Engine::post_callback(Callback callback) { callbacks_->post(std::move(callback)); }

// ---- descriptors -------------------------------------------------------------------------------

void Engine::watch(std::uint64_t id, int fd) {
  {
    std::lock_guard lock(fds_mu_);
    if (fd_ids_.size() <= static_cast<std::size_t>(fd)) {
      fd_ids_.resize(static_cast<std::size_t>(fd) + 1);
    }
    fd_ids_[static_cast<std::size_t>(fd)] = id;
  }
  if (Status status = add_to_epoll(network_epoll_.get(), fd, id); !status) {
    ff::log(ff::LogLevel::kError, "{}", status.message());
  }
}

void Engine::watch_writes(std::uint64_t /*id*/, int fd, bool wanted) {
  epoll_event event{};
  event.events = EPOLLIN | (wanted ? std::uint32_t{EPOLLOUT} : 0);
  {
    std::lock_guard lock(fds_mu_);
    event.data.u64 = fd_ids_[static_cast<std::size_t>(fd)];
  }
  ::epoll_ctl(network_epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Engine::unwatch(int fd) { ::epoll_ctl(network_epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

}  // namespace hfreduce
