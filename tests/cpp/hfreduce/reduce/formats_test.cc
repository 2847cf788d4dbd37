// SPDX-License-Identifier: Apache-2.0
//
// The conversions of 16-bit and 8-bit formats, seen through kernels with one source: native_to_acc
// is a conversion to fp32, acc_to_native one from it. Expected values follow from the definition of
// each format, not from code like the kernels'.
#include <gtest/gtest.h>

#include "hfreduce/reduce/samples.h"

namespace hfreduce {
namespace {

struct Format {
  DType dtype;
  int exponent_bits, mantissa_bits, bias;
  std::uint32_t max;       // code of the largest finite number
  std::uint32_t overflow;  // code of what is too large, the sign apart
  std::uint32_t nan;       // code of the NaN that results have
  bool fnuz;               // one NaN, at the place of -0
  bool infinity;

  int size() const { return static_cast<int>(size_of(dtype)); }
  std::uint32_t sign() const { return 1u << (8 * size() - 1); }
  std::uint32_t codes() const { return 1u << (8 * size()); }

  double value(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign() - 1);
    if (fnuz && code == sign()) return std::nan("");
    if (!fnuz && magnitude > max) {
      const bool is_infinity = infinity && magnitude == max + 1;
      if (!is_infinity) return std::nan("");
      return code & sign() ? -HUGE_VAL : HUGE_VAL;
    }
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const int mantissa = static_cast<int>(magnitude & ((1u << mantissa_bits) - 1));
    const double absolute = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                          : std::ldexp(mantissa + (1 << mantissa_bits),
                                                       exponent - bias - mantissa_bits);
    return code & sign() ? -absolute : absolute;
  }
};

const Format kFormats[] = {
    {DType::kFloat16, 5, 10, 15, 0x7bff, 0x7c00, 0x7e00, false, true},
    {DType::kBFloat16, 8, 7, 127, 0x7f7f, 0x7f80, 0x7fc0, false, true},
    {DType::kFloat8E4M3FN, 4, 3, 7, 0x7e, 0x7e, 0x7f, false, false},
    {DType::kFloat8E5M2, 5, 2, 15, 0x7b, 0x7c, 0x7f, false, true},
    {DType::kFloat8E4M3FNUZ, 4, 3, 8, 0x7f, 0x80, 0x80, true, false},
    {DType::kFloat8E5M2FNUZ, 5, 2, 16, 0x7f, 0x80, 0x80, true, false},
};

struct Param {
  Format format;
  Isa isa;
};

std::vector<Param> params() {
  std::vector<Param> params;
  for (const Isa isa : available_isas()) {
    for (const Format& format : kFormats) params.push_back({format, isa});
  }
  return params;
}

class FormatsTest : public testing::TestWithParam<Param> {
 protected:
  const Format& format() const { return GetParam().format; }

  Kernels kernels() const {
    Kernels kernels;
    EXPECT_TRUE(find_kernels(format().dtype, RedOp::kSum, GetParam().isa, &kernels).ok());
    EXPECT_EQ(kernels.acc_size, sizeof(float));
    return kernels;
  }

  std::vector<float> to_float(const std::vector<std::uint32_t>& codes) const {
    Bytes native(codes.size() * format().size());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      std::memcpy(&native[i * format().size()], &codes[i], format().size());
    }
    std::vector<float> values(codes.size());
    const void* src = native.data();
    kernels().native_to_acc(values.data(), nullptr, &src, 1, codes.size(), {});
    return values;
  }

  std::vector<std::uint32_t> from_float(const std::vector<float>& values) const {
    Bytes native(values.size() * format().size());
    const void* src = values.data();
    kernels().acc_to_native(native.data(), nullptr, &src, 1, values.size(), {});
    std::vector<std::uint32_t> codes(values.size(), 0);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      std::memcpy(&codes[i], &native[i * format().size()], format().size());
    }
    return codes;
  }
};

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

TEST_P(FormatsTest, ToFloatIsExact) {
  std::vector<std::uint32_t> codes;
  for (std::uint32_t code = 0; code < format().codes(); ++code) codes.push_back(code);
  const std::vector<float> values = to_float(codes);
  for (std::uint32_t code = 0; code < format().codes(); ++code) {
    const double expected = format().value(code);
    if (std::isnan(expected)) {
      ASSERT_EQ(bits_of(values[code]), 0x7fc00000u) << std::hex << code;
    } else {
      ASSERT_EQ(bits_of(values[code]), bits_of(static_cast<float>(expected))) << std::hex << code;
    }
  }
}

// Each number, the middle between it and the next, and the fp32 numbers beside the middle.
TEST_P(FormatsTest, FromFloatRoundsToNearestEven) {
  std::vector<float> values;
  std::vector<std::uint32_t> expected;
  const auto add = [&](double value, std::uint32_t code) {
    const std::uint32_t negative = format().fnuz && code == 0 ? 0 : code | format().sign();
    values.push_back(static_cast<float>(value));
    expected.push_back(code);
    values.push_back(static_cast<float>(-value));
    expected.push_back(negative);
  };
  for (std::uint32_t code = 0; code <= format().max; ++code) {
    const bool last = code == format().max;
    const std::uint32_t next_code = last ? format().overflow : code + 1;
    // Beyond the last number stands the one that a larger format would have.
    const double value = format().value(code);
    const double next = last ? 2 * value - format().value(code - 1) : format().value(code + 1);
    const float middle = static_cast<float>((value + next) / 2);
    const std::uint32_t even = code % 2 == 0 ? code : next_code;
    add(value, code);
    add(middle, even);
    add(std::nextafter(middle, 0.0f), code);
    add(std::nextafter(middle, HUGE_VALF), next_code);
    add(std::nextafter(static_cast<float>(value), HUGE_VALF), code);
    if (code > 0) add(std::nextafter(static_cast<float>(value), 0.0f), code);
  }
  const std::vector<std::uint32_t> codes = from_float(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(codes[i], expected[i]) << std::hexfloat << values[i];
  }
}

TEST_P(FormatsTest, FromFloatAtTheEnds) {
  const std::vector<float> large = {HUGE_VALF, std::numeric_limits<float>::max()};
  const std::uint32_t sign = format().sign();
  for (const float value : large) {
    EXPECT_EQ(from_float({value})[0], format().overflow);
    EXPECT_EQ(from_float({-value})[0], format().overflow | sign);
  }
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(from_float({least})[0], 0u);
  EXPECT_EQ(from_float({-least})[0], format().fnuz ? 0u : sign);
  EXPECT_EQ(from_float({-0.0f})[0], format().fnuz ? 0u : sign);
}

// Any NaN, of either sign, quiet or signalling, becomes the one NaN.
TEST_P(FormatsTest, FromFloatHasOneNan) {
  std::vector<float> nans;
  for (const std::uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu,
                                   0xffffffffu, 0x7fbfffffu, 0x7f810000u, 0xffff0000u}) {
    float nan;
    std::memcpy(&nan, &bits, sizeof(nan));
    nans.push_back(nan);
    nans.push_back(1.0f);
  }
  const std::vector<std::uint32_t> codes = from_float(nans);
  for (std::size_t i = 0; i < codes.size(); i += 2) EXPECT_EQ(codes[i], format().nan) << i;
}

INSTANTIATE_TEST_SUITE_P(Formats, FormatsTest, testing::ValuesIn(params()), [](const auto& info) {
  return std::string(name_of(info.param.format.dtype)) + "_" + name_of(info.param.isa);
});

}  // namespace
}  // namespace hfreduce
