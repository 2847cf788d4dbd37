// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/reduce/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "hfreduce/reduce/samples.h"

namespace hfreduce {
namespace {

using testing::HasSubstr;

bool is_integer(DType dtype) { return !is_floating(dtype); }

bool has_meaning(DType dtype, RedOp op) {
  switch (op) {
    case RedOp::kSum:
    case RedOp::kProduct:
      return true;
    case RedOp::kAvg:
    case RedOp::kPremulSum:
      return is_floating(dtype);
    case RedOp::kMin:
    case RedOp::kMax:
      return component_of(dtype) == dtype;
    default:
      return is_integer(dtype);
  }
}

TEST(Kernels, EveryPairIsSupportedOrNamesTheCure) {
  for (const Isa isa : available_isas()) {
    for (const DType dtype : all_dtypes()) {
      for (const RedOp op : all_ops()) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::string(name_of(op)));
        Kernels kernels;
        const ff::Status status = find_kernels(dtype, op, isa, &kernels);
        EXPECT_EQ(status.ok(), has_meaning(dtype, op));
        if (status.ok()) {
          EXPECT_NE(kernels.native_to_native, nullptr);
          EXPECT_NE(kernels.native_to_acc, nullptr);
          EXPECT_NE(kernels.acc_to_acc, nullptr);
          EXPECT_NE(kernels.acc_to_native, nullptr);
          EXPECT_GE(kernels.acc_size, size_of(dtype));
        } else {
          EXPECT_EQ(status.code(), ff::Code::kUnsupported);
          EXPECT_EQ(status.fact("dtype"), name_of(dtype));
          EXPECT_EQ(status.fact("op"), name_of(op));
        }
      }
    }
  }
}

TEST(Kernels, MessagesSayWhatToDo) {
  Kernels kernels;
  EXPECT_THAT(find_kernels(DType::kInt32, RedOp::kAvg, &kernels).message(),
              HasSubstr("avg is not defined for int32: use sum and divide"));
  EXPECT_THAT(find_kernels(DType::kBool, RedOp::kPremulSum, &kernels).message(),
              HasSubstr("multiply the input and use sum"));
  EXPECT_THAT(find_kernels(DType::kFloat16, RedOp::kBxor, &kernels).message(),
              HasSubstr("view the buffer as integers of the same size"));
  EXPECT_THAT(find_kernels(DType::kComplex64, RedOp::kMax, &kernels).message(),
              HasSubstr("complex numbers have no order"));
  EXPECT_THAT(find_kernels(DType::kComplex64, RedOp::kBand, &kernels).message(),
              HasSubstr("two for each number"));
}

TEST(Kernels, AccumulatorSizes) {
  const auto acc_size = [](DType dtype, RedOp op) {
    Kernels kernels;
    EXPECT_TRUE(find_kernels(dtype, op, &kernels).ok());
    return kernels.acc_size;
  };
  EXPECT_EQ(acc_size(DType::kFloat16, RedOp::kSum), 4u);
  EXPECT_EQ(acc_size(DType::kBFloat16, RedOp::kAvg), 4u);
  EXPECT_EQ(acc_size(DType::kFloat8E5M2, RedOp::kProduct), 4u);
  EXPECT_EQ(acc_size(DType::kComplex32, RedOp::kSum), 8u);
  EXPECT_EQ(acc_size(DType::kBFloat16, RedOp::kMax), 2u);
  EXPECT_EQ(acc_size(DType::kFloat32, RedOp::kSum), 4u);
  EXPECT_EQ(acc_size(DType::kComplex128, RedOp::kProduct), 16u);
  EXPECT_EQ(acc_size(DType::kInt16, RedOp::kSum), 2u);
}

TEST(Kernels, BestIsaRuns) {
  const std::vector<Isa> isas = available_isas();
  EXPECT_THAT(isas, testing::Contains(best_isa()));
  EXPECT_THAT(isas, testing::Contains(Isa::kPortable));
}

#ifdef __SSE2__
// A thread on which denormals are flushed or rounding is upward gets the same bits, and keeps its
// mode.
TEST(Kernels, ResultsDoNotDependOnTheThreadsMode) {
  std::mt19937_64 random(5);
  const unsigned usual = _mm_getcsr();
  const unsigned unusual = usual | 0x8040 | 0x4000;  // flush to zero, denormals are zero, upward
  for (const Isa isa : available_isas()) {
    for (const DType dtype : all_dtypes()) {
      for (const RedOp op : {RedOp::kSum, RedOp::kProduct, RedOp::kMax}) {
        Kernels kernels;
        if (!find_kernels(dtype, op, isa, &kernels).ok()) continue;
        constexpr std::size_t kCount = 500;
        const Bytes a = sample(dtype, kCount, &random), b = sample(dtype, kCount, &random);
        const void* src[] = {a.data(), b.data()};
        Bytes expected(a.size()), result(a.size());
        kernels.native_to_native(expected.data(), nullptr, src, 2, kCount, {});
        _mm_setcsr(unusual);
        kernels.native_to_native(result.data(), nullptr, src, 2, kCount, {});
        const unsigned kept = _mm_getcsr();
        _mm_setcsr(usual);
        EXPECT_EQ(kept & 0xffc0, unusual & 0xffc0);
        EXPECT_EQ(result, expected) << name_of(dtype) << " " << name_of(op);
      }
    }
  }
}
#endif

}  // namespace
}  // namespace hfreduce
