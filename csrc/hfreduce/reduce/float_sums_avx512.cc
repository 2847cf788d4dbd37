// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/reduce/x86.h"
#include "hfreduce/reduce/float_sums.h"

template struct hfreduce::FloatSums<hfreduce::Avx512>;
