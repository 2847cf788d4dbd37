// SPDX-License-Identifier: Apache-2.0
//
// Status: how an operation went, across module borders. Standard library only, since the public
// headers of libhfreduce include it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ff {

enum class Code {
  kOk = 0,
  kInvalidArgument,  // the caller's request makes no sense; nothing was done
  kUnsupported,      // the request makes sense, but not for this type, operation or layout
  kTimeout,          // a deadline passed
  kPeerLost,         // a process that takes part has died or left
  kMismatch,         // the ranks called different things at the same point
  kAborted,          // abort() or shutdown was called, or another rank gave up
  kRefused,          // a handshake failed: wrong key, wrong version
  kResource,         // memory, descriptors or shared memory ran out
  kIo,               // a system call failed
  kInternal,         // a bug of ours
};

std::string_view code_name(Code code);

// A code, a sentence for a person, and named facts for a program (for example rank=3, host=a7,
// op=allreduce, seq=17). An OK status carries nothing and costs one pointer.
class [[nodiscard]] Status {
 public:
  using Context = std::vector<std::pair<std::string, std::string>>;

  Status() = default;
  Status(Code code, std::string message, Context context = {});

  bool ok() const { return rep_ == nullptr; }
  explicit operator bool() const { return ok(); }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  const std::string& message() const;
  const Context& context() const;
  // The value of `key`, or an empty string.
  std::string_view fact(std::string_view key) const;
  // The same status with one more fact; an OK status stays OK.
  Status with(std::string key, std::string value) const;
  // "timeout: allreduce #17 ... "
  std::string to_string() const;

 private:
  struct Rep {
    Code code;
    std::string message;
    Context context;
  };
  std::shared_ptr<const Rep> rep_;
};

}  // namespace ff
