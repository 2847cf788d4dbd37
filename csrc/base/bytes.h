// SPDX-License-Identifier: Apache-2.0
//
// ByteWriter and ByteReader: small records for stores and sockets. Numbers are little-endian, text
// is prefixed by a 32-bit length. A reader never reads past its end: the first short read makes it
// bad, and all later reads return zero.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace ff {

class ByteWriter {
 public:
  template <typename T>
  requires std::is_integral_v<T>
  void number(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));  // all supported machines are little-endian
    out_.append(raw, sizeof(T));
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    out_.append(value);
  }
  template <std::size_t N>
  void raw(const std::array<std::uint8_t, N>& value) {
    out_.append(reinterpret_cast<const char*>(value.data()), N);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view in) : in_(in) {}
  template <typename T>
  requires std::is_integral_v<T> T number() {
    T value{};
    if (in_.size() < sizeof(T)) {
      bad_ = true;
      in_ = {};
      return value;
    }
    std::memcpy(&value, in_.data(), sizeof(T));
    in_.remove_prefix(sizeof(T));
    return value;
  }
  std::string text(std::size_t longest = 4096) {
    auto size = number<std::uint32_t>();
    if (bad_ || size > longest || size > in_.size()) {
      bad_ = true;
      in_ = {};
      return {};
    }
    std::string value(in_.substr(0, size));
    in_.remove_prefix(size);
    return value;
  }
  template <std::size_t N>
  std::array<std::uint8_t, N> raw() {
    std::array<std::uint8_t, N> value{};
    if (in_.size() < N) {
      bad_ = true;
      in_ = {};
      return value;
    }
    std::memcpy(value.data(), in_.data(), N);
    in_.remove_prefix(N);
    return value;
  }
  // All was there, and nothing is left over.
  bool complete() const { return !bad_ && in_.empty(); }
  bool ok() const { return !bad_; }

 private:
  std::string_view in_;
  bool bad_ = false;
};

}  // namespace ff
