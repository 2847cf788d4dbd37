// SPDX-License-Identifier: Apache-2.0
//
// Store: the key-value store through which the ranks of a new communicator find one another. The
// torch adapter wraps torch's own Store; C++ programs use FileStore.
#pragma once

#include <chrono>
#include <string>

#include "base/status.h"

namespace hfreduce {

class Store {
 public:
  virtual ~Store() = default;
  // Publishes `value` under `key`; keys are written once.
  virtual ff::Status set(const std::string& key, const std::string& value) = 0;
  // Blocks until `key` exists; kTimeout after `timeout`.
  virtual ff::Status get(const std::string& key, std::chrono::milliseconds timeout,
                         std::string* value) = 0;
};

}  // namespace hfreduce
