// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/options.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace hfreduce {
namespace {

using ff::Code;
using ff::Status;

const char* lookup(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

Status bad(const char* name, std::string_view value, std::string_view accepted) {
  return Status(Code::kInvalidArgument,
                std::string(name) + "=" + std::string(value) +
                    " is not understood; accepted: " + std::string(accepted));
}

// A whole number with an optional K, M or G (powers of 1024).
template <typename T>
Status read_number(const char* name, T lowest, T highest, T* out) {
  const char* text = lookup(name);
  if (text == nullptr) return {};
  std::string accepted = "a whole number from " + std::to_string(lowest) + " to " +
                         std::to_string(highest) + ", K, M and G allowed";
  std::string_view view(text);
  unsigned long long value = 0;
  auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  std::string_view unit(end, static_cast<std::size_t>(view.data() + view.size() - end));
  if (error != std::errc()) return bad(name, view, accepted);
  int shift = 0;
  if (unit == "K" || unit == "k") {
    shift = 10;
  } else if (unit == "M" || unit == "m") {
    shift = 20;
  } else if (unit == "G" || unit == "g") {
    shift = 30;
  } else if (!unit.empty()) {
    return bad(name, view, accepted);
  }
  if (value > (~0ULL >> shift)) return bad(name, view, accepted);
  value <<= shift;
  if (value < static_cast<unsigned long long>(lowest) ||
      value > static_cast<unsigned long long>(highest)) {
    return bad(name, view, accepted);
  }
  *out = static_cast<T>(value);
  return {};
}

void read_text(const char* name, std::string* out) {
  if (const char* text = lookup(name)) *out = text;
}

}  // namespace

Status options_from_env(Options* options) {
  read_text("HFREDUCE_SOCKET_IFNAME", &options->interfaces);
  read_text("HFREDUCE_NODE", &options->node);
  read_text("HFREDUCE_ZONE", &options->zone);
  if (const char* text = lookup("HFREDUCE_ALGO")) {
    std::string_view value(text);
    if (value == "auto") {
      options->algorithm = Algorithm::kAuto;
    } else if (value == "direct") {
      options->algorithm = Algorithm::kDirect;
    } else if (value == "tree") {
      options->algorithm = Algorithm::kTree;
    } else {
      return bad("HFREDUCE_ALGO", value, "auto, direct, tree");
    }
  }
  if (const char* text = lookup("HFREDUCE_SHM")) {
    std::string_view value(text);
    if (value != "0" && value != "1") return bad("HFREDUCE_SHM", value, "0, 1");
    options->shm = value == "1";
  }
  if (const char* text = lookup("HFREDUCE_WIRE")) {
    std::string_view value(text);
    if (value != "native" && value != "fp32") return bad("HFREDUCE_WIRE", value, "fp32, native");
    options->native_wire = value == "native";
  }
  if (Status s = read_number<std::size_t>("HFREDUCE_CHUNK_BYTES", 4096, kMostChunkBytes,
                                          &options->chunk_bytes);
      !s) {
    return s;
  }
  if (Status s = read_number<int>("HFREDUCE_STREAMS", 1, kMostStreams, &options->streams); !s)
    return s;
  if (Status s = read_number<std::size_t>("HFREDUCE_ARENA_BYTES", 0, std::size_t{1} << 40,
                                          &options->arena_bytes);
      !s) {
    return s;
  }
  std::size_t timeout_ms = 0;
  if (Status s =
          read_number<std::size_t>("HFREDUCE_TIMEOUT_MS", 1, std::size_t{1} << 40, &timeout_ms);
      !s) {
    return s;
  }
  if (timeout_ms != 0) options->timeout = std::chrono::milliseconds(timeout_ms);
  return {};
}

}  // namespace hfreduce
