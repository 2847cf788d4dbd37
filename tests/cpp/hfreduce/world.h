// SPDX-License-Identifier: Apache-2.0
//
// World: several ranks in one test process. Each is a thread with an engine of its own, so they
// meet through real sockets and real shared memory, and a sanitizer sees all of them.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hfreduce/bootstrap/file_store.h"
#include "hfreduce/communicator.h"
#include "hfreduce/engine/engine.h"

namespace hfreduce {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hfreduce-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct WorldShape {
  std::vector<int> nodes;  // the node of each rank
  Options options;
  // Ranks per node; {2, 3} has ranks 0 and 1 on one node, 2 to 4 on the other.
  static WorldShape of(const std::vector<int>& ranks_per_node) {
    WorldShape shape;
    for (std::size_t node = 0; node < ranks_per_node.size(); ++node) {
      shape.nodes.insert(shape.nodes.end(), static_cast<std::size_t>(ranks_per_node[node]),
                         static_cast<int>(node));
    }
    return shape;
  }
  int size() const { return static_cast<int>(nodes.size()); }
};

using RankBody = std::function<void(Communicator& comm)>;

// A place where the ranks' threads wait for each other, without the library.
class MeetingPoint {
 public:
  explicit MeetingPoint(int size) : barrier_(size) {}
  void wait() { barrier_.arrive_and_wait(); }

 private:
  std::barrier<> barrier_;
};

// Runs `body` on every rank and destroys the group.
inline void run_world(const WorldShape& shape, const RankBody& body) {
  TempFolder folder;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.size(); ++rank) {
    threads.emplace_back([&, rank] {
      std::shared_ptr<Store> store;
      ASSERT_TRUE(FileStore::open(folder.path(), &store).ok());
      auto engine = Engine::create(std::size_t{64} << 20);
      ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
      Options options = shape.options;
      options.node = "node" + std::to_string(shape.nodes[rank]);
      options.interfaces = "=lo";
      options.timeout = std::chrono::seconds(60);
      std::shared_ptr<Communicator> comm;
      ff::Status status =
          Communicator::create(store, "", rank, shape.size(), options, &comm, *engine);
      ASSERT_TRUE(status.ok()) << status.to_string();
      body(*comm);
    });
  }
  for (auto& thread : threads) thread.join();
}

#define ASSERT_OK(expression)                         \
  do {                                                \
    ff::Status status_ = (expression);                \
    ASSERT_TRUE(status_.ok()) << status_.to_string(); \
  } while (false)

}  // namespace hfreduce
