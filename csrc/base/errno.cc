// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <system_error>

#include "base/result.h"

namespace ff {

Status errno_status(std::string what, int error) {
  bool resource = error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC ||
                  error == ENOBUFS || error == EAGAIN;
  return Status(resource ? Code::kResource : Code::kIo,
                what + ": " + std::generic_category().message(error),
                {{"errno", std::to_string(error)}});
}

}  // namespace ff
