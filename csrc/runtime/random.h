// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace ff {

// Fills `out` from the kernel's generator; fit for keys. Aborts the process where there is none.
void fill_random(void* out, std::size_t size);
std::uint64_t random_u64();

}  // namespace ff
