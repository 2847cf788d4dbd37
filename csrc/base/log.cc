// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>

namespace ff {
namespace {

spdlog::level::level_enum translate(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

spdlog::logger& logger() {
  // Never destroyed: threads of ours may log while the process exits.
  static auto* instance = [] {
    auto* made = new spdlog::logger("hfreduce", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %P hfreduce %l: %v");
    made->set_level(spdlog::level::warn);
    if (const char* name = std::getenv("HFREDUCE_DEBUG")) {
      made->set_level(spdlog::level::from_str(name));
    }
    return made;
  }();
  return *instance;
}

}  // namespace

bool log_enabled(LogLevel level) { return logger().should_log(translate(level)); }

void log_line(LogLevel level, std::string_view line) { logger().log(translate(level), line); }

}  // namespace ff
