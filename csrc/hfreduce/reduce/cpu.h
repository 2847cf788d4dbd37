// SPDX-License-Identifier: Apache-2.0
//
// What this processor and its operating system can run.
#pragma once

#include "hfreduce/reduce/kernels.h"

namespace hfreduce {

bool cpu_runs(Isa isa);
bool cpu_adds_fp16();  // AVX512_FP16

}  // namespace hfreduce
