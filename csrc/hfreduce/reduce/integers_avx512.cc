// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/reduce/integers.h"

template struct hfreduce::Integers<hfreduce::Avx512>;
