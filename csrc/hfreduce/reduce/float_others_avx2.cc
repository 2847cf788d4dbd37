// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/reduce/float_others.h"
#include "hfreduce/reduce/x86.h"

template struct hfreduce::FloatOthers<hfreduce::Avx2>;
