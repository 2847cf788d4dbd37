// SPDX-License-Identifier: Apache-2.0
//
// hfreduce.Options: what a person hands to init_process_group, new_group, split_group or DeviceMesh
// as pg_options. A field that is not set is taken from the environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/status.h"
#include "hfreduce/options.h"

namespace hfreduce::adapter {

struct BackendOptions : c10d::Backend::Options {
  BackendOptions() : c10d::Backend::Options("hfreduce") {}

  // Newer torch copies options by this virtual, and would cut our fields off without it.
  c10::intrusive_ptr<c10d::Backend::Options> copy() const {
    return c10::make_intrusive<BackendOptions>(*this);
  }
// NOLINTBEGIN(modernize-use-override)
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#endif
  c10::intrusive_ptr<c10d::Backend::Options> clone() const { return copy(); }
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
  // NOLINTEND(modernize-use-override)

  // Set by the person, so it wins over the timeout that torch hands to the backend (which is the
  // default of 30 minutes in new_group, whatever the options say).
  std::optional<std::chrono::milliseconds> own_timeout;
  std::optional<std::string> algorithm;
  std::optional<std::uint64_t> chunk_bytes;
  std::optional<int> streams;
  std::optional<std::string> interfaces;
  std::optional<std::string> node;
  std::optional<std::string> zone;
  std::optional<bool> shm;
  std::optional<bool> native_wire;
  std::optional<std::uint64_t> arena_bytes;

  // The environment, then what is set here.
  ff::Status resolve(hfreduce::Options* out) const;
};

// Any options as ours: ours are copied; of another backend's (a group of several backends shares
// one pg_options) only what every backend has is kept.
c10::intrusive_ptr<BackendOptions> to_own(
    const c10::intrusive_ptr<c10d::Backend::Options>& options);

}  // namespace hfreduce::adapter
