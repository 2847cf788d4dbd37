// SPDX-License-Identifier: Apache-2.0
#include "net/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>

namespace ff {
namespace {

Result<UniqueFd> open_socket(const Address& address) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail(errno_status("open a socket for " + address.to_string(), errno));
  return fd;
}

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof(value));
}

}  // namespace

Result<UniqueFd> listen_on(Address* address, int backlog) {
  auto fd = open_socket(*address);
  if (!fd) return fd;
  if (address->family() == AF_INET6) set_option(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(fd->get(), address->raw(), address->size()) != 0 ||
      ::listen(fd->get(), backlog) != 0) {
    return fail(errno_status("listen on " + address->to_string(), errno));
  }
  if (!address->is_unix()) {
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (::getsockname(fd->get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
      return fail(errno_status("read the port of " + address->to_string(), errno));
    }
    *address = Address(reinterpret_cast<const sockaddr*>(&bound), size);
  }
  return fd;
}

Result<UniqueFd> connect_to(const Address& address, std::chrono::milliseconds timeout) {
  auto fd = open_socket(address);
  if (!fd) return fd;
  tune_stream(fd->get(), address.is_unix());
  if (::connect(fd->get(), address.raw(), address.size()) == 0) return fd;
  if (errno != EINPROGRESS) return fail(errno_status("connect to " + address.to_string(), errno));
  pollfd waiting{fd->get(), POLLOUT, 0};
  int ready = ::poll(&waiting, 1, static_cast<int>(timeout.count()));
  if (ready == 0) {
    return fail(Code::kTimeout, "connect to " + address.to_string() + ": no answer within " +
                                    std::to_string(timeout.count()) + " ms");
  }
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd->get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return fail(errno_status("connect to " + address.to_string(), error));
  return fd;
}

Result<UniqueFd> accept_from(int listener) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd || errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return fd;
  return fail(errno_status("accept a connection", errno));
}

void tune_stream(int fd, bool is_unix) {
  if (is_unix) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, 1 << 20);
    return;
  }
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 60);
}

std::int64_t ms_since_last_ack(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return -1;
  return info.tcpi_last_ack_recv;
}

}  // namespace ff
