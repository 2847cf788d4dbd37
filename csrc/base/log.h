// SPDX-License-Identifier: Apache-2.0
//
// Logging to standard error through spdlog, at the level HFREDUCE_DEBUG names (trace, debug, info,
// warn, error; default warn). Secrets are never passed to it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace ff {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };

bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view line);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ff
