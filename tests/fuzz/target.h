// SPDX-License-Identifier: Apache-2.0
//
// FUZZ_TARGET(name) { ... } is the body of one target: `data` and `size` are its input. Built alone
// it is libFuzzer's entry; built with the others it is found by replay_test.cc, which runs all of
// them over the inputs in corpus/, with any compiler and under any sanitizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace hfreduce::fuzz {

using Target = int (*)(const std::uint8_t* data, std::size_t size);

// Called before main(), by each target that is linked in.
bool register_target(const char* name, Target target);

// What must hold whatever the input is.
inline void require(bool holds) {
  if (!holds) std::abort();
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Takes numbers from the front of an input; zero once it is used up.
class Dice {
 public:
  Dice(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ == size_; }
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  std::uint64_t below(std::uint64_t bound) { return byte() % bound; }
  std::uint64_t word() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  std::string_view rest() const { return text_of(data_ + at_, size_ - at_); }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

}  // namespace hfreduce::fuzz

#ifdef FF_FUZZ_ALONE
#define FUZZ_TARGET(name) \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
#else
#define FUZZ_TARGET(name)                                            \
  static int run_##name(const std::uint8_t* data, std::size_t size); \
  [[maybe_unused]] static const bool registered_##name =             \
      hfreduce::fuzz::register_target(#name, run_##name);            \
  static int run_##name(const std::uint8_t* data, std::size_t size)
#endif
