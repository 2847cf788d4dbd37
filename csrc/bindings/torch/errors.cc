// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/errors.h"

#include <torch/csrc/Exceptions.h>

#include <utility>

#include "bindings/torch/python.h"

namespace hfreduce::adapter {
namespace {

std::exception_ptr plain_exception(const ff::Status& status) {
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "hfreduce: " + status.to_string()));
}

// The engine's name for an operation, as the `op` of errors has it: "allreduce" for "all_reduce".
std::string engine_name(std::string_view op) {
  std::string name(op);
  if (name.starts_with("all_")) std::erase(name, '_');
  return name;
}

ff::Status refusal(ff::Code code, std::string_view op, const std::string& text) {
  return ff::Status(code, std::string(op) + ": " + text, {{"op", engine_name(op)}});
}

}  // namespace

std::exception_ptr to_exception(const ff::Status& status) {
  stay_if_leaving();
  if (!python_alive()) return plain_exception(status);
  const py::gil_scoped_acquire gil;
  const py::error_scope keep;  // whatever error this thread is already dealing with
  try {
    py::dict facts;
    for (const auto& [key, value] : status.context()) facts[py::str(key)] = py::str(value);
    py::object exception = py::module_::import("hfreduce.errors")
                               .attr("from_status")(std::string(ff::code_name(status.code())),
                                                    status.message(), facts);
    python_error error;
    error.message = py::str(exception).cast<std::string>();
    error.type = py::type::of(exception).release().ptr();
    error.value = exception.release().ptr();
    return std::make_exception_ptr(std::move(error));
  } catch (const py::error_already_set&) {
    // Without our Python package (a half-finished import, for example) the type is lost, not the
    // message.
    return plain_exception(status);
  }
}

void throw_status(const ff::Status& status) { std::rethrow_exception(to_exception(status)); }

void throw_invalid_text(std::string_view op, const std::string& text) {
  throw_status(refusal(ff::Code::kInvalidArgument, op, text));
}

void throw_unsupported(std::string_view op, const std::string& text) {
  throw_status(refusal(ff::Code::kUnsupported, op, text));
}

}  // namespace hfreduce::adapter
