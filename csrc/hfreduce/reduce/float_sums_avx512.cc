// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/reduce/float_sums.h"
#include "hfreduce/reduce/x86.h"

template struct hfreduce::FloatSums<hfreduce::Avx512>;
