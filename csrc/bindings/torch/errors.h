// SPDX-License-Identifier: Apache-2.0
//
// A Status becomes the Python exception that a person expects (hfreduce.errors).
//
// The exception object is made here and carried as torch's python_error: so its type and its
// attributes survive every road on which torch may hand it on (a direct call, Work.wait, a Future,
// the autograd engine, a compiled graph). A C++ exception would arrive as RuntimeError on some.
#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hfreduce::adapter {

// A new exception each time: a Python exception collects the frames that it passes through, and
// those must not pile up on an object that a group or an operation keeps.
std::exception_ptr to_exception(const ff::Status& status);
[[noreturn]] void throw_status(const ff::Status& status);
inline void throw_if_error(const ff::Status& status) {
  if (!status.ok()) throw_status(status);
}

// The call makes no sense. `op` is torch's name for it; `parts` make up the sentence.
[[noreturn]] void throw_invalid_text(std::string_view op, const std::string& text);
template <class... Parts>
[[noreturn]] void throw_invalid(std::string_view op, const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  throw_invalid_text(op, out.str());
}
// The call makes sense, but not for what it was given.
[[noreturn]] void throw_unsupported(std::string_view op, const std::string& text);

}  // namespace hfreduce::adapter
