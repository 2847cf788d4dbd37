// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/errors.h"

#include <torch/csrc/Exceptions.h>

#include <utility>

#include "bindings/torch/python.h"

namespace hfreduce::adapter {
namespace {

std::exception_ptr plain_exception(const ff::Status& status) {
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                            "hfreduce: " + status.to_string()));
}

}  // namespace

std::exception_ptr to_exception(const ff::Status& status) {
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

}  // namespace hfreduce::adapter
