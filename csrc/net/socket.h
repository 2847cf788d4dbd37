// SPDX-License-Identifier: Apache-2.0
//
// Socket calls that the transports share. All sockets are non-blocking and close-on-exec.
#pragma once

#include <chrono>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "net/address.h"

namespace ff {

// Binds and listens; `address` with port 0 takes a free one, and is updated.
Result<UniqueFd> listen_on(Address* address, int backlog = 1024);
// Starts to connect and waits at most `timeout`.
Result<UniqueFd> connect_to(const Address& address, std::chrono::milliseconds timeout);
// The next pending connection; an empty UniqueFd when there is none.
Result<UniqueFd> accept_from(int listener);
// Sets TCP_NODELAY and keep-alive; does nothing on Unix sockets.
void tune_stream(int fd, bool is_unix);
// Milliseconds since the other end's kernel last acknowledged something; -1 if unknown.
std::int64_t ms_since_last_ack(int fd);

}  // namespace ff
