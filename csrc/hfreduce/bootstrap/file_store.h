// SPDX-License-Identifier: Apache-2.0
//
// FileStore: a Store in a folder that all ranks can reach, a file for each key. For C++ programs,
// tests and benchmarks; the folder is the caller's to make and to remove.
#pragma once

#include <memory>
#include <string>

#include "hfreduce/store.h"

namespace hfreduce {

class FileStore final : public Store {
 public:
  // `folder` must exist, belong to this user and be writable by nobody else.
  static ff::Status open(const std::string& folder, std::shared_ptr<Store>* out);

  ff::Status set(const std::string& key, const std::string& value) override;
  ff::Status get(const std::string& key, std::chrono::milliseconds timeout,
                 std::string* value) override;

 private:
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}
  std::string path_of(const std::string& key) const;
  const std::string folder_;
};

}  // namespace hfreduce
