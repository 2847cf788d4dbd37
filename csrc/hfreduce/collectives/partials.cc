// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/collectives/partials.h"

#include <algorithm>

namespace hfreduce {

bool is_partial_native(const CommunicatorImpl& comm, const Kernels& kernels, std::size_t size,
                       int node) {
  return kernels.acc_size == size || comm.options().native_wire ||
         comm.layout().nodes[node].size() == 1;
}

void add_partials(const Kernels& kernels, const std::vector<Partial>& partials, std::size_t count,
                  std::byte* wide, std::byte* target, bool to_native, const Scale& scale) {
  const Scale none;
  const auto n = static_cast<int>(partials.size());
  std::vector<const void*> sources;
  if (std::all_of(partials.begin(), partials.end(), [](const Partial& p) { return p.native; })) {
    for (const Partial& partial : partials) sources.push_back(partial.data);
    kernels.native_to_native(target, nullptr, sources.data(), n, count, to_native ? scale : none);
    return;
  }
  for (const Partial& partial : partials) {
    if (!partial.native) {
      sources.push_back(partial.data);
      continue;
    }
    const void* narrow = partial.data;
    kernels.native_to_acc(wide, nullptr, &narrow, 1, count, none);
    sources.push_back(wide);
    wide += (count * kernels.acc_size + 63) / 64 * 64;
  }
  auto kernel = to_native ? kernels.acc_to_native : kernels.acc_to_acc;
  kernel(target, nullptr, sources.data(), n, count, to_native ? scale : none);
}

}  // namespace hfreduce
