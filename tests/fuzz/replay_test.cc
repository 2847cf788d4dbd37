// SPDX-License-Identifier: Apache-2.0
//
// Runs every target over the inputs in corpus/<target>/: seeds, and whatever once went wrong. Each
// input is also cut short at every length, since that is what decoders get wrong most.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "target.h"

namespace hfreduce::fuzz {
namespace {

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const auto& [name, target] : targets()) names.push_back(name);
  return names;
}

class Replay : public testing::TestWithParam<std::string> {};

TEST_P(Replay, Corpus) {
  const Target target = targets().at(GetParam());
  int inputs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(FF_FUZZ_CORPUS) / GetParam())) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    for (std::size_t size = 0; size <= text.size(); ++size) {
      // A copy of its own, so that a sanitizer sees reads past the end.
      const std::vector<std::uint8_t> input(text.begin(),
                                            text.begin() + static_cast<std::ptrdiff_t>(size));
      target(input.data(), input.size());
    }
    ++inputs;
  }
  EXPECT_GT(inputs, 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, testing::ValuesIn(target_names()),
                         [](const auto& info) { return info.param; });

}  // namespace

bool register_target(const char* name, Target target) {
  return targets().emplace(name, target).second;
}

}  // namespace hfreduce::fuzz
