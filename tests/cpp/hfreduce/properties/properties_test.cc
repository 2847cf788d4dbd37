// SPDX-License-Identifier: Apache-2.0
//
// Random programs on random worlds against a simple reference. HFREDUCE_TEST_SECONDS is how long
// (default 8); HFREDUCE_TEST_SEED replays one program, whose seed is printed when it fails.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>

#include "hfreduce/delays.h"
#include "hfreduce/properties/runner.h"
#include "hfreduce/seed.h"

namespace hfreduce {
namespace {

TEST(Properties, RandomProgramsGiveWhatTheReferenceGives) {
  const char* text = std::getenv("HFREDUCE_TEST_SECONDS");
  const std::chrono::seconds budget(text != nullptr ? std::atoi(text) : 8);
  const auto end = std::chrono::steady_clock::now() + budget;
  int programs = 0;
  do {
    Seed seed;
    const Program program = ProgramMaker(seed.value()).make();
    SCOPED_TRACE(program.to_string());
    std::optional<RandomDelays> delays;
    if (program.delays) delays.emplace(seed.value());
    std::vector<std::string> wrong(static_cast<std::size_t>(program.size()));
    run_world(program.shape,
              [&](Communicator& comm) { wrong[comm.rank()] = Runner(program, comm).run(); });
    for (const std::string& line : wrong) EXPECT_EQ(line, "");
    ++programs;
    if (seed.given() || HasFailure()) break;
  } while (std::chrono::steady_clock::now() < end);
  RecordProperty("programs", programs);
}

}  // namespace
}  // namespace hfreduce
