// SPDX-License-Identifier: Apache-2.0
//
// The cause of a group's failure, as one rank tells it to the others.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hfreduce {

// Cut where it would not fit into a control frame.
std::string encode_cause(const ff::Status& cause);
// Never OK: of a malformed payload it says just that.
ff::Status decode_cause(std::string_view payload);

}  // namespace hfreduce
