// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/engine/callbacks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <vector>

namespace hfreduce {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

struct Running {
  std::shared_ptr<Callbacks> callbacks = std::make_shared<Callbacks>();
  ~Running() { callbacks->stop(); }
};

TEST(Callbacks, RunInOrder) {
  Running running;
  std::vector<int> order;
  std::promise<void> last;
  for (int i = 0; i < 100; ++i) {
    running.callbacks->post({[&order, i] {
      EXPECT_TRUE(Callbacks::running());
      order.push_back(i);
    }});
  }
  running.callbacks->post({[&last] { last.set_value(); }});
  last.get_future().wait();
  EXPECT_FALSE(Callbacks::running());
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// Each waits for the one that it posts, at once and not after the time that others have.
TEST(Callbacks, OneMayWaitForOneThatItAskedFor) {
  Running running;
  std::promise<void> outer;
  const auto start = Clock::now();
  running.callbacks->post({[&] {
    std::promise<void> middle;
    running.callbacks->post({[&] {
                               std::promise<void> inner;
                               running.callbacks->post({[&] { inner.set_value(); }, true});
                               inner.get_future().wait();
                               middle.set_value();
                             },
                             true});
    middle.get_future().wait();
    outer.set_value();
  }});
  EXPECT_EQ(outer.get_future().wait_for(milliseconds(10'000)), std::future_status::ready);
  EXPECT_LT(Clock::now() - start, milliseconds(45));
}

TEST(Callbacks, OneMayWaitForAnyBehindIt) {
  Running running;
  std::promise<void> behind;
  std::promise<void> done;
  running.callbacks->post({[&] {
    behind.get_future().wait();
    done.set_value();
  }});
  running.callbacks->post({[&] { behind.set_value(); }});
  EXPECT_EQ(done.get_future().wait_for(milliseconds(10'000)), std::future_status::ready);
}

TEST(Callbacks, WhatWasPostedBeforeTheEndIsRun) {
  std::promise<void> done;
  {
    Running running;
    running.callbacks->post({[&] { done.set_value(); }});
  }
  EXPECT_EQ(done.get_future().wait_for(milliseconds(10'000)), std::future_status::ready);
}

}  // namespace
}  // namespace hfreduce
