// SPDX-License-Identifier: Apache-2.0
//
// torch's key-value store as the rendezvous store of libhfreduce.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "hfreduce/store.h"

namespace hfreduce::adapter {

// Every call must be made without the GIL: the store may be a Python object.
class TorchStore : public Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store);

  ff::Status set(const std::string& key, const std::string& value) override;
  ff::Status get(const std::string& key, std::chrono::milliseconds timeout,
                 std::string* value) override;

  ff::Status add(const std::string& key, std::int64_t amount, std::int64_t* value);
  ff::Status remove(const std::string& key);

  // A key prefix that no earlier communicator used, though it may have met on the same store under
  // the same name. Each rank counts its own meetings, so all ranks arrive at the same prefix.
  ff::Status fresh_prefix(const std::string& name, int rank, std::string* prefix);

 private:
  // Throws when the key is not there in time.
  void wait(const std::string& key, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> store_;
  bool is_file_;
};

}  // namespace hfreduce::adapter
