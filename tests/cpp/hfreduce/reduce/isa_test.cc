// SPDX-License-Identifier: Apache-2.0
//
// Every instruction set gives the bits of the portable kernels: for all types and operations, any
// count, alignment, number of sources, and destinations that are sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "hfreduce/reduce/samples.h"

namespace hfreduce {
namespace {

constexpr ReduceFn Kernels::*kForms[] = {&Kernels::native_to_native, &Kernels::native_to_acc,
                                         &Kernels::acc_to_acc, &Kernels::acc_to_native};
const char* const kFormNames[] = {"native_to_native", "native_to_acc", "acc_to_acc",
                                  "acc_to_native"};

// The type of the accumulators of `dtype` and `op`.
DType acc_dtype(DType dtype, const Kernels& kernels) {
  if (kernels.acc_size == size_of(dtype)) return dtype;
  return dtype == DType::kComplex32 ? DType::kComplex64 : DType::kFloat32;
}

struct Case {
  DType dtype;
  RedOp op;
  int form;
  DType in, out;

  std::string name() const {
    return std::string(name_of(dtype)) + " " + std::string(name_of(op)) + " " + kFormNames[form];
  }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType dtype : all_dtypes()) {
    for (const RedOp op : all_ops()) {
      Kernels kernels;
      if (!find_kernels(dtype, op, Isa::kPortable, &kernels).ok()) continue;
      const DType acc = acc_dtype(dtype, kernels);
      cases.push_back({dtype, op, 0, dtype, dtype});
      cases.push_back({dtype, op, 1, dtype, acc});
      cases.push_back({dtype, op, 2, acc, acc});
      cases.push_back({dtype, op, 3, acc, dtype});
    }
  }
  return cases;
}

ReduceFn kernel(const Case& c, Isa isa) {
  Kernels kernels;
  EXPECT_TRUE(find_kernels(c.dtype, c.op, isa, &kernels).ok());
  return kernels.*kForms[c.form];
}

Scale scale_of(RedOp op, int variant) {
  if (op == RedOp::kAvg) return {1.0, 1.0 / (3 + variant)};
  if (op == RedOp::kPremulSum) return {0.3 + variant, 1.0};
  return {};
}

// Arrays at chosen distances from an aligned address, with guards on both sides.
class Array {
 public:
  Array(std::size_t size, std::size_t offset)
      : offset_(kGuard + offset), size_(size), memory_(offset_ + size + kGuard, kFill) {}
  Array(const Bytes& content, std::size_t offset) : Array(content.size(), offset) {
    std::copy(content.begin(), content.end(), memory_.begin() + offset_);
  }
  unsigned char* data() { return memory_.data() + offset_; }
  Bytes content() const {
    return Bytes(memory_.begin() + offset_, memory_.begin() + offset_ + size_);
  }
  bool guards_stand() const {
    const auto is_fill = [](unsigned char c) { return c == kFill; };
    return std::all_of(memory_.begin(), memory_.begin() + offset_, is_fill) &&
           std::all_of(memory_.begin() + offset_ + size_, memory_.end(), is_fill);
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kFill = 0xa5;
  std::size_t offset_, size_;
  std::vector<unsigned char> memory_;
};

// One call with arrays of its own. `alias`: the source that is the destination, or -1.
struct Result {
  Bytes dst, dst2;
};
Result call(ReduceFn fn, const Case& c, const std::vector<Bytes>& sources, std::size_t count,
            std::size_t offset, int alias, bool second, const Scale& scale) {
  std::vector<Array> arrays;
  std::vector<const void*> pointers;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    arrays.emplace_back(sources[k], offset == 0 ? 0 : (offset * (k + 3)) % 64);
  }
  for (Array& array : arrays) pointers.push_back(array.data());
  Array own(count * size_of(c.out), offset), dst2(count * size_of(c.out), offset / 2);
  Array& dst = alias >= 0 ? arrays[alias] : own;
  fn(dst.data(), second ? dst2.data() : nullptr, pointers.data(), static_cast<int>(sources.size()),
     count, scale);
  EXPECT_TRUE(dst.guards_stand()) << c.name();
  EXPECT_TRUE(dst2.guards_stand()) << c.name();
  for (std::size_t k = 0; k < sources.size(); ++k) {
    if (static_cast<int>(k) == alias) continue;
    EXPECT_EQ(arrays[k].content(), sources[k]) << c.name();
  }
  return {dst.content(), second ? dst2.content() : Bytes()};
}

// 1,100 elements are several blocks of every width, and a tail.
std::vector<std::size_t> counts_for(std::mt19937_64* random) {
  return {0,   1,   2 + (*random)() % 14,    16 + (*random)() % 48, 64 + (*random)() % 190,
          256, 257, 1000 + (*random)() % 100};
}

class IsaTest : public testing::TestWithParam<Isa> {};

TEST_P(IsaTest, SameBitsAsPortable) {
  std::mt19937_64 random(1);
  for (const Case& c : all_cases()) {
    const ReduceFn expected_fn = kernel(c, Isa::kPortable);
    const ReduceFn fn = kernel(c, GetParam());
    for (int n = 1; n <= 9; ++n) {
      for (const std::size_t count : counts_for(&random)) {
        const std::size_t offset = random() % 3 == 0 ? 0 : random() % 64;
        std::vector<Bytes> sources;
        for (int k = 0; k < n; ++k) sources.push_back(sample(c.in, count, &random));
        const int alias =
            size_of(c.in) == size_of(c.out) ? static_cast<int>(random() % (n + 1)) - 1 : -1;
        const bool second = random() % 2 == 0;
        const Scale scale = scale_of(c.op, n);
        const Bytes expected = call(expected_fn, c, sources, count, 0, -1, false, scale).dst;
        const Result result = call(fn, c, sources, count, offset, alias, second, scale);
        SCOPED_TRACE(c.name() + " n=" + std::to_string(n) + " count=" + std::to_string(count) +
                     " offset=" + std::to_string(offset) + " alias=" + std::to_string(alias));
        ASSERT_EQ(result.dst, expected);
        if (second) {
          ASSERT_EQ(result.dst2, expected);
        }
      }
    }
  }
}

// An element's result does not depend on the elements around it: one call gives the same bits as a
// call for each element.
TEST_P(IsaTest, EachElementStandsAlone) {
  std::mt19937_64 random(2);
  constexpr std::size_t kCount = 75;
  for (const Case& c : all_cases()) {
    const ReduceFn fn = kernel(c, GetParam());
    const int n = 1 + static_cast<int>(random() % 5);
    std::vector<Bytes> sources;
    for (int k = 0; k < n; ++k) sources.push_back(sample(c.in, kCount, &random));
    const Scale scale = scale_of(c.op, n);
    const Bytes together = call(fn, c, sources, kCount, 0, -1, false, scale).dst;
    Bytes apart(together.size());
    for (std::size_t i = 0; i < kCount; ++i) {
      std::vector<const void*> pointers;
      for (const Bytes& source : sources) pointers.push_back(source.data() + i * size_of(c.in));
      fn(apart.data() + i * size_of(c.out), nullptr, pointers.data(), n, 1, scale);
    }
    ASSERT_EQ(together, apart) << c.name();
  }
}

// Fused and in two steps, with accumulators between: the bits are the same where nothing is rounded
// in between, which is what trees over nodes rely on.
TEST_P(IsaTest, OneStepEqualsTwo) {
  std::mt19937_64 random(3);
  constexpr std::size_t kCount = 131;
  for (const Case& c : all_cases()) {
    if (c.form != 0) continue;
    Kernels kernels;
    ASSERT_TRUE(find_kernels(c.dtype, c.op, GetParam(), &kernels).ok());
    std::vector<Bytes> sources;
    std::vector<const void*> pointers;
    for (int k = 0; k < 5; ++k) sources.push_back(sample(c.dtype, kCount, &random));
    for (const Bytes& source : sources) pointers.push_back(source.data());
    const Scale scale = scale_of(c.op, 2);
    Bytes fused(kCount * size_of(c.dtype)), result(fused.size());
    kernels.native_to_native(fused.data(), nullptr, pointers.data(), 5, kCount, scale);

    // ((s0 s1 s2) s3) s4: each partial sum made of elements alone joins the one before.
    std::vector<Bytes> partials(3, Bytes(kCount * kernels.acc_size));
    kernels.native_to_acc(partials[0].data(), nullptr, pointers.data(), 3, kCount, scale);
    kernels.native_to_acc(partials[1].data(), nullptr, &pointers[3], 1, kCount, scale);
    kernels.native_to_acc(partials[2].data(), nullptr, &pointers[4], 1, kCount, scale);
    const void* both[] = {partials[0].data(), partials[1].data()};
    kernels.acc_to_acc(partials[0].data(), nullptr, both, 2, kCount, scale);
    both[1] = partials[2].data();
    kernels.acc_to_native(result.data(), nullptr, both, 2, kCount, scale);
    ASSERT_EQ(result, fused) << c.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, IsaTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace hfreduce
