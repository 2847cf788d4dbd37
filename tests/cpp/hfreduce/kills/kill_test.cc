// SPDX-License-Identifier: Apache-2.0
//
// One of several processes is killed in a chosen phase. Every other must learn of it within 5 s, by
// an error that names the dead; later calls must fail at once with the same cause; and after the
// group is destroyed no thread and no descriptor may be left.
//
// HFREDUCE_TEST_KILLS sets the number of kills (default 42); HFREDUCE_TEST_SEED replays a run.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "hfreduce/engine/phase.h"
#include "hfreduce/world.h"

namespace hfreduce {
namespace {

using Clock = std::chrono::steady_clock;

struct KillCase {
  std::vector<int> ranks_per_node;
  Algorithm algorithm;
  Phase phase;
  long entry;  // dies when it enters the phase for this time
  int victim;
};

// Seen by all processes of one case.
struct Shared {
  std::atomic<int> arrived;  // ranks that have created their group
};

int count_entries(const char* folder) {
  int count = 0;
  DIR* dir = ::opendir(folder);
  if (dir == nullptr) return -1;
  while (::readdir(dir) != nullptr) ++count;
  ::closedir(dir);
  return count;
}

// Exit codes of a surviving child; 0 is success.
enum Verdict {
  kFine = 0,
  kNoGroup = 10,
  kWrongCode = 11,
  kWrongRank = 12,
  kLaterDiffers = 13,
  kThreadsLeft = 14,
  kDescriptorsLeft = 15,
  kNeverFailed = 16,
};

// Does collectives of all kinds until one fails.
ff::Status work_until_failure(Communicator& comm, std::mt19937& random) {
  std::vector<float> data(200000, 1.0F);
  std::vector<float> target(200000);
  for (int i = 0; i < 20000; ++i) {
    std::size_t count = random() % 4 == 0 ? 1 + random() % 8 : 1 + random() % 200000;
    ff::Status status;
    switch (random() % 5) {
      case 0:
      case 1:
        status = comm.allreduce(data.data(), target.data(), count, DType::kFloat32, {RedOp::kSum})
                     ->wait();
        break;
      case 2: {
        int root = static_cast<int>(random() % static_cast<unsigned>(comm.size()));
        status = comm.broadcast(target.data(), count, DType::kFloat32, root)->wait();
        break;
      }
      case 3: {
        std::size_t bytes = count / static_cast<std::size_t>(comm.size()) * sizeof(float);
        std::vector<Bytes> out;
        for (int r = 0; r < comm.size(); ++r) {
          out.push_back({reinterpret_cast<std::byte*>(target.data()) + bytes * r, bytes});
        }
        status = comm.allgather({data.data(), bytes}, out, DType::kFloat32)->wait();
        break;
      }
      default: {
        // Left in flight: the next operations queue behind it.
        auto request = comm.barrier();
        static_cast<void>(request);
      }
    }
    if (!status) return status;
  }
  return {};
}

int survive(const KillCase& test, int rank, const std::string& folder, unsigned seed,
            Shared* shared) {
  int threads = count_entries("/proc/self/task");
  int descriptors = count_entries("/proc/self/fd");
  if (rank == test.victim) {
    std::string fault =
        std::string("kill:") + name_of(test.phase) + ":" + std::to_string(test.entry);
    ::setenv("HFREDUCE_FAULT", fault.c_str(), 1);
    reload_fault();
  }
  WorldShape shape = WorldShape::of(test.ranks_per_node);
  std::shared_ptr<Store> store;
  if (!FileStore::open(folder, &store)) return kNoGroup;
  Options options;
  options.node = "node" + std::to_string(shape.nodes[rank]);
  options.interfaces = "=lo";
  options.algorithm = test.algorithm;
  options.timeout = std::chrono::seconds(test.phase == Phase::kRendezvous ? 3 : 60);
  options.arena_bytes = 1 << 20;
  std::shared_ptr<Communicator> comm;
  ff::Status status = Communicator::create(store, "", rank, shape.size(), options, &comm);
  if (test.phase == Phase::kRendezvous) {
    // Either this rank found out at start-up, or it got through before the other died.
    if (!status) return kFine;
  } else if (!status) {
    std::fprintf(stderr, "rank %d: %s\n", rank, status.to_string().c_str());
    return kNoGroup;
  }
  shared->arrived.fetch_add(1);
  std::mt19937 random(seed);
  if (test.phase == Phase::kDestroy && rank == test.victim) {
    static_cast<void>(comm->barrier()->wait());
    comm.reset();
    return kNeverFailed;  // the victim must not come this far
  }
  if (test.phase == Phase::kDestroy) static_cast<void>(comm->barrier()->wait());
  ff::Status failure = work_until_failure(*comm, random);
  if (rank == test.victim) return kNeverFailed;
  if (failure.code() != ff::Code::kPeerLost) {
    std::fprintf(stderr, "rank %d: %s\n", rank, failure.to_string().c_str());
    return failure.ok() ? kNeverFailed : kWrongCode;
  }
  if (failure.fact("rank") != std::to_string(test.victim)) {
    std::fprintf(stderr, "rank %d blames %s\n", rank, failure.to_string().c_str());
    return kWrongRank;
  }
  ff::Status later = comm->barrier()->wait();
  if (later.code() != failure.code() || later.fact("rank") != failure.fact("rank")) {
    return kLaterDiffers;
  }
  comm.reset();
  // The engine's thread may hold the last reference for a moment, and then ends on its own.
  auto patience = Clock::now() + std::chrono::seconds(1);
  while (Clock::now() < patience && (count_entries("/proc/self/task") != threads ||
                                     count_entries("/proc/self/fd") != descriptors)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (count_entries("/proc/self/task") != threads) return kThreadsLeft;
  if (count_entries("/proc/self/fd") != descriptors) return kDescriptorsLeft;
  return kFine;
}

void run_case(const KillCase& test, unsigned seed) {
  TempFolder folder;
  auto* shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  new (shared) Shared{};
  int size = 0;
  for (int n : test.ranks_per_node) size += n;
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(60);
      ::_exit(survive(test, rank, folder.path(), seed, shared));
    }
    children.push_back(pid);
  }
  // First the victim, then the clock for the others.
  int status = 0;
  ::waitpid(children[test.victim], &status, 0);
  auto died = Clock::now();
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
      << "the victim did not reach " << name_of(test.phase) << " " << test.entry
      << " times; status " << status;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == test.victim) continue;
    ::waitpid(children[rank], &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kFine)
        << "rank " << rank << " status " << status << " exit " << WEXITSTATUS(status);
  }
  auto took = Clock::now() - died;
  EXPECT_LT(took, std::chrono::seconds(5));
  ::munmap(shared, sizeof(Shared));
}

TEST(Kill, InEveryPhase) {
  const char* kills_text = std::getenv("HFREDUCE_TEST_KILLS");
  const char* seed_text = std::getenv("HFREDUCE_TEST_SEED");
  int kills = kills_text != nullptr ? std::atoi(kills_text) : 42;
  unsigned seed =
      seed_text != nullptr ? static_cast<unsigned>(std::atol(seed_text)) : std::random_device{}();
  std::printf("HFREDUCE_TEST_SEED=%u\n", seed);
  std::mt19937 random(seed);
  std::map<std::string, int> hit;
  for (int kill = 0; kill < kills; ++kill) {
    KillCase test;
    test.phase = static_cast<Phase>(kill % kPhaseCount);
    bool tree = test.phase == Phase::kTreeUp || test.phase == Phase::kTreeDown;
    static const std::vector<std::vector<int>> worlds = {{3}, {2}, {1, 1, 1}, {2, 2}, {2, 1}};
    static const std::vector<std::vector<int>> tree_worlds = {{1, 1, 1}, {2, 2}, {1, 1, 1, 1}};
    const auto& choices = tree ? tree_worlds : worlds;
    test.ranks_per_node = choices[random() % choices.size()];
    // These phases are not passed where every node has one rank.
    bool local = test.phase == Phase::kCopyIn || test.phase == Phase::kCopyOut;
    if (local)
      test.ranks_per_node = random() % 2 == 0 ? std::vector<int>{3} : std::vector<int>{2, 2};
    test.algorithm = tree ? Algorithm::kTree : Algorithm::kAuto;
    int size = 0;
    for (int n : test.ranks_per_node) size += n;
    test.victim = static_cast<int>(random() % static_cast<unsigned>(size));
    bool once = test.phase == Phase::kDestroy;
    test.entry =
        once ? 1 : 1 + static_cast<long>(random() % (test.phase == Phase::kRendezvous ? 2 : 60));
    SCOPED_TRACE(std::string("kill ") + std::to_string(kill) + " in " + name_of(test.phase) +
                 " entry " + std::to_string(test.entry) + " victim " + std::to_string(test.victim) +
                 " of " + std::to_string(size) + " on " +
                 std::to_string(test.ranks_per_node.size()) + " nodes");
    run_case(test, static_cast<unsigned>(random()));
    if (testing::Test::HasFailure()) return;
    ++hit[name_of(test.phase)];
  }
  for (const auto& [phase, count] : hit) {
    std::printf("  %-12s %d kills\n", phase.c_str(), count);
    EXPECT_GE(count, kills / kPhaseCount);
  }
}

}  // namespace
}  // namespace hfreduce
