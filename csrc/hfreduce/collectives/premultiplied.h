// SPDX-License-Identifier: Apache-2.0
//
// PREMUL_SUM: each rank multiplies its input by a factor of its own, so the product is formed where
// the factor is known: the input is turned into accumulators at once, the sum runs over these, and
// the result is rounded to the element type once, at the end.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hfreduce/collectives/allreduce.h"

namespace hfreduce {

// The type in which sums of `dtype` are held.
DType accumulator_of(DType dtype);

// Wraps the sum of accumulators. `blocks` are the inputs; `make_sum` is given their places as
// accumulators and a place for the result, and makes the operation that sums; `out` gets the
// result, unless null.
std::shared_ptr<Op> make_premultiplied(
    std::shared_ptr<CommunicatorImpl> comm, const OpDescriptor& descriptor, const Kernels& kernels,
    double factor, std::vector<ConstBytes> blocks, std::size_t element, Bytes out,
    const std::function<std::shared_ptr<Op>(std::vector<ConstBytes> in, Bytes out)>& make_sum);

}  // namespace hfreduce
