// SPDX-License-Identifier: Apache-2.0
//
// Results against plain loops over elements. What other instruction sets do is isa_test.cc's
// matter; conversions are formats_test.cc's.
#include <gtest/gtest.h>

#include <complex>
#include <functional>
#include <type_traits>

#include "hfreduce/reduce/samples.h"

namespace hfreduce {
namespace {

constexpr int kSources = 5;
constexpr std::size_t kCount = 700;

template <class T>
std::vector<T> as(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <class T>
T one_nan(T value) {
  return value != value ? std::numeric_limits<T>::quiet_NaN() : value;
}
template <class T>
std::complex<T> one_nan(std::complex<T> value) {
  return {one_nan(value.real()), one_nan(value.imag())};
}
template <class T>
std::enable_if_t<std::is_integral_v<T>, T> one_nan_or_integer(T value) {
  return value;
}
template <class T>
std::enable_if_t<!std::is_integral_v<T>, T> one_nan_or_integer(T value) {
  return one_nan(value);
}

// Joins sampled arrays by `join`, one after the other, and expects the kernel's bytes.
template <class T>
void expect_joined(DType dtype, RedOp op, Isa isa, const std::function<T(T, T)>& join,
                   bool canonical) {
  std::mt19937_64 random(static_cast<unsigned>(dtype) * 100 + static_cast<unsigned>(op));
  std::vector<Bytes> sources;
  std::vector<const void*> pointers;
  for (int k = 0; k < kSources; ++k) sources.push_back(sample(dtype, kCount, &random));
  for (const Bytes& source : sources) pointers.push_back(source.data());
  std::vector<T> expected = as<T>(sources[0]);
  for (int k = 1; k < kSources; ++k) {
    const std::vector<T> next = as<T>(sources[k]);
    for (std::size_t i = 0; i < kCount; ++i) expected[i] = join(expected[i], next[i]);
  }
  if (canonical) {
    for (T& value : expected) value = one_nan_or_integer(value);
  }
  Kernels kernels;
  ASSERT_TRUE(find_kernels(dtype, op, isa, &kernels).ok());
  EXPECT_EQ(kernels.acc_size, size_of(dtype));
  std::vector<T> result(kCount);
  kernels.native_to_native(result.data(), nullptr, pointers.data(), kSources, kCount, {});
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(std::memcmp(&result[i], &expected[i], sizeof(T)), 0)
        << name_of(dtype) << " " << name_of(op) << " element " << i;
  }
}

class ReferenceTest : public testing::TestWithParam<Isa> {
 protected:
  template <class T>
  void integer(DType dtype) {
    using U = std::make_unsigned_t<T>;
    using Wide = std::uint64_t;  // no promotion to a signed type, hence no overflow
    const auto wrap = [](Wide value) { return static_cast<T>(static_cast<U>(value)); };
    const auto check = [&](RedOp op, const std::function<T(T, T)>& join) {
      expect_joined<T>(dtype, op, GetParam(), join, false);
    };
    check(RedOp::kSum, [&](T a, T b) { return wrap(static_cast<Wide>(a) + static_cast<Wide>(b)); });
    check(RedOp::kProduct,
          [&](T a, T b) { return wrap(static_cast<Wide>(a) * static_cast<Wide>(b)); });
    check(RedOp::kMin, [](T a, T b) { return b < a ? b : a; });
    check(RedOp::kMax, [](T a, T b) { return b > a ? b : a; });
    check(RedOp::kBand, [](T a, T b) { return static_cast<T>(a & b); });
    check(RedOp::kBor, [](T a, T b) { return static_cast<T>(a | b); });
    check(RedOp::kBxor, [](T a, T b) { return static_cast<T>(a ^ b); });
  }

  template <class T>
  void floating(DType dtype) {
    const auto check = [&](RedOp op, bool canonical, const std::function<T(T, T)>& join) {
      expect_joined<T>(dtype, op, GetParam(), join, canonical);
    };
    check(RedOp::kSum, true, [](T a, T b) { return a + b; });
    check(RedOp::kProduct, true, [](T a, T b) { return a * b; });
    check(RedOp::kMin, false, [](T a, T b) { return std::isnan(b) || b < a ? b : a; });
    check(RedOp::kMax, false, [](T a, T b) { return std::isnan(b) || b > a ? b : a; });
  }

  template <class T>
  void complex(DType dtype) {
    using C = std::complex<T>;
    expect_joined<C>(
        dtype, RedOp::kSum, GetParam(), [](C a, C b) { return a + b; }, true);
    const auto multiply = [](C a, C b) {
      return C(a.real() * b.real() - a.imag() * b.imag(),
               a.real() * b.imag() + a.imag() * b.real());
    };
    expect_joined<C>(dtype, RedOp::kProduct, GetParam(), multiply, true);
  }
};

TEST_P(ReferenceTest, Integers) {
  integer<std::uint8_t>(DType::kUInt8);
  integer<std::int8_t>(DType::kInt8);
  integer<std::uint16_t>(DType::kUInt16);
  integer<std::int16_t>(DType::kInt16);
  integer<std::uint32_t>(DType::kUInt32);
  integer<std::int32_t>(DType::kInt32);
  integer<std::uint64_t>(DType::kUInt64);
  integer<std::int64_t>(DType::kInt64);
}

TEST_P(ReferenceTest, Bools) {
  using B = std::uint8_t;
  const auto any = [](B a, B b) -> B { return a || b; };
  const auto all = [](B a, B b) -> B { return a && b; };
  const auto odd = [](B a, B b) -> B { return a != b; };
  for (const RedOp op : {RedOp::kSum, RedOp::kMax, RedOp::kBor}) {
    expect_joined<B>(DType::kBool, op, GetParam(), any, false);
  }
  for (const RedOp op : {RedOp::kProduct, RedOp::kMin, RedOp::kBand}) {
    expect_joined<B>(DType::kBool, op, GetParam(), all, false);
  }
  expect_joined<B>(DType::kBool, RedOp::kBxor, GetParam(), odd, false);
}

TEST_P(ReferenceTest, Floats) {
  floating<float>(DType::kFloat32);
  floating<double>(DType::kFloat64);
}

TEST_P(ReferenceTest, ComplexNumbers) {
  complex<float>(DType::kComplex64);
  complex<double>(DType::kComplex128);
}

// Sums and products of small formats are those of fp32, rounded once: of the values that
// native_to_acc gives, joined in fp32, and what acc_to_native makes of the result.
TEST_P(ReferenceTest, SmallFormatsAccumulateInFloat) {
  std::mt19937_64 random(11);
  for (const DType dtype :
       {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3FN, DType::kFloat8E5M2,
        DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2FNUZ, DType::kComplex32}) {
    for (const RedOp op : {RedOp::kSum, RedOp::kAvg, RedOp::kPremulSum, RedOp::kProduct}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::string(name_of(op)));
      const std::size_t parts = dtype == DType::kComplex32 ? 2 : 1;
      Kernels kernels;
      ASSERT_TRUE(find_kernels(dtype, op, GetParam(), &kernels).ok());
      ASSERT_EQ(kernels.acc_size, parts * sizeof(float));
      const Scale scale = {op == RedOp::kPremulSum ? 0.7 : 1.0, op == RedOp::kAvg ? 0.2 : 1.0};
      std::vector<Bytes> sources;
      std::vector<const void*> pointers;
      std::vector<std::vector<float>> values;
      for (int k = 0; k < kSources; ++k) {
        sources.push_back(sample(dtype, kCount, &random));
        values.emplace_back(kCount * parts);
        const void* src = sources.back().data();
        kernels.native_to_acc(values.back().data(), nullptr, &src, 1, kCount, {});
      }
      for (const Bytes& source : sources) pointers.push_back(source.data());
      std::vector<float> joined(kCount * parts);
      for (std::size_t i = 0; i < joined.size(); ++i) {
        const auto input = [&](int k, std::size_t at) {
          const float value = values[k][at];
          return op == RedOp::kPremulSum ? value * static_cast<float>(scale.before) : value;
        };
        float real = input(0, i - i % parts), imaginary = input(0, i - i % parts + parts - 1);
        float value = input(0, i);
        for (int k = 1; k < kSources; ++k) {
          if (op != RedOp::kProduct) {
            value += input(k, i);
          } else if (parts == 1) {
            value *= input(k, i);
          } else {
            const float re = input(k, i - i % 2), im = input(k, i - i % 2 + 1);
            const float new_real = real * re - imaginary * im;
            imaginary = real * im + imaginary * re;
            real = new_real;
            value = i % 2 == 0 ? real : imaginary;
          }
        }
        joined[i] = op == RedOp::kAvg ? value * static_cast<float>(scale.after) : value;
      }
      Bytes expected(kCount * size_of(dtype)), result(expected.size());
      const void* src = joined.data();
      kernels.acc_to_native(expected.data(), nullptr, &src, 1, kCount, {});
      kernels.native_to_native(result.data(), nullptr, pointers.data(), kSources, kCount, scale);
      ASSERT_EQ(result, expected);
    }
  }
}

// One rounding, not one for each source: 256 + 1 + 1 is 258 in fp32, and 256 when each partial sum
// is rounded to bf16.
TEST_P(ReferenceTest, OneRounding) {
  Kernels kernels;
  ASSERT_TRUE(find_kernels(DType::kBFloat16, RedOp::kSum, GetParam(), &kernels).ok());
  const std::uint16_t large = 0x4380, one = 0x3f80;
  const void* src[] = {&large, &one, &one};
  std::uint16_t result = 0;
  kernels.native_to_native(&result, nullptr, src, 3, 1, {});
  EXPECT_EQ(result, 0x4381);
}

// A minimum or maximum is NaN when any input is, wherever the NaN stands; it is one of the inputs,
// unrounded, in all formats.
TEST_P(ReferenceTest, ExtremesOfSmallFormats) {
  std::mt19937_64 random(12);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3FN,
                            DType::kFloat8E5M2, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2FNUZ}) {
    for (const RedOp op : {RedOp::kMin, RedOp::kMax}) {
      Kernels kernels, sum;
      ASSERT_TRUE(find_kernels(dtype, op, GetParam(), &kernels).ok());
      ASSERT_TRUE(find_kernels(dtype, RedOp::kSum, GetParam(), &sum).ok());
      ASSERT_EQ(kernels.acc_size, size_of(dtype));
      std::vector<Bytes> sources;
      std::vector<const void*> pointers;
      for (int k = 0; k < 3; ++k) sources.push_back(sample(dtype, kCount, &random));
      for (const Bytes& source : sources) pointers.push_back(source.data());
      const auto value = [&](const void* src) {
        float value = 0;
        sum.native_to_acc(&value, nullptr, &src, 1, 1, {});
        return value;
      };
      Bytes result(kCount * size_of(dtype));
      kernels.native_to_native(result.data(), nullptr, pointers.data(), 3, kCount, {});
      for (std::size_t i = 0; i < kCount; ++i) {
        const std::size_t at = i * size_of(dtype);
        float expected = value(&sources[0][at]);
        bool is_input = false;
        for (int k = 0; k < 3; ++k) {
          const float next = value(&sources[k][at]);
          const bool better = op == RedOp::kMin ? next < expected : next > expected;
          if (!std::isnan(expected) && (std::isnan(next) || better)) expected = next;
          is_input |= std::memcmp(&sources[k][at], &result[at], size_of(dtype)) == 0;
        }
        const float actual = value(&result[at]);
        ASSERT_TRUE(is_input);
        ASSERT_TRUE(std::isnan(expected) ? std::isnan(actual) : actual == expected)
            << name_of(dtype) << " " << name_of(op) << ": " << actual << " is not " << expected;
      }
    }
  }
}

// Factors apply to elements alone: `before` not to partial sums, `after` not on the way to them.
TEST_P(ReferenceTest, FactorsApplyToElements) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    Kernels kernels;
    ASSERT_TRUE(find_kernels(dtype, RedOp::kPremulSum, GetParam(), &kernels).ok());
    const Scale scale = {3.0, 0.5};
    const std::uint16_t half_two = 0x4000;
    const float two = 2.0f;
    const void* element = dtype == DType::kFloat32 ? static_cast<const void*>(&two) : &half_two;
    const void* partial = &two;
    const auto element_value = [&](const void* bytes) {
      float value = 0;
      kernels.native_to_acc(&value, nullptr, &bytes, 1, 1, {});
      return value;
    };
    float acc = 0, result = 0;
    kernels.native_to_acc(&acc, nullptr, &element, 1, 1, scale);
    EXPECT_EQ(acc, 6.0f);
    kernels.acc_to_acc(&acc, nullptr, &partial, 1, 1, scale);
    EXPECT_EQ(acc, 2.0f);
    kernels.acc_to_native(&result, nullptr, &partial, 1, 1, scale);
    EXPECT_EQ(element_value(&result), 1.0f);
    kernels.native_to_native(&result, nullptr, &element, 1, 1, scale);
    EXPECT_EQ(element_value(&result), 3.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ReferenceTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace hfreduce
