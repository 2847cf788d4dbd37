// SPDX-License-Identifier: Apache-2.0
//
// Seed: where a random test starts. A new one for each run, or HFREDUCE_TEST_SEED, which replays;
// it is printed when the test fails.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace hfreduce {

class Seed {
 public:
  Seed() {
    const char* text = std::getenv("HFREDUCE_TEST_SEED");
    given_ = text != nullptr;
    value_ = given_ ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  }
  ~Seed() {
    if (!testing::Test::HasFailure()) return;
    std::printf("replay with HFREDUCE_TEST_SEED=%llu\n", static_cast<unsigned long long>(value_));
  }
  Seed(const Seed&) = delete;
  Seed& operator=(const Seed&) = delete;

  std::uint64_t value() const { return value_; }
  bool given() const { return given_; }

 private:
  bool given_;
  std::uint64_t value_;
};

}  // namespace hfreduce
