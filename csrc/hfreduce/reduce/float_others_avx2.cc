// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/reduce/x86.h"
#include "hfreduce/reduce/float_others.h"

template struct hfreduce::FloatOthers<hfreduce::Avx2>;
