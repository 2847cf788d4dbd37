// SPDX-License-Identifier: Apache-2.0
//
// Result<T>: a T or the Status that says why there is none. Internal headers only: public headers
// stay with Status, since they use the standard library alone.
#pragma once

#include <tl/expected.hpp>

#include "base/status.h"

namespace ff {

template <typename T>
using Result = tl::expected<T, Status>;

inline tl::unexpected<Status> fail(Code code, std::string message, Status::Context context = {}) {
  return tl::unexpected<Status>(Status(code, std::move(message), std::move(context)));
}
inline tl::unexpected<Status> fail(Status status) {
  return tl::unexpected<Status>(std::move(status));
}

// "connect 10.0.0.2:4000: Connection refused"
Status errno_status(std::string what, int error);

}  // namespace ff
