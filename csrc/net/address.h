// SPDX-License-Identifier: Apache-2.0
//
// Address: an IPv4, IPv6 or abstract Unix socket address; and the addresses of this host's
// interfaces, chosen with NCCL's syntax.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ff {

class Address {
 public:
  Address() = default;
  Address(const sockaddr* raw, socklen_t size);
  // A name in the abstract Unix namespace: no file, so nothing is left behind by any kind of death.
  static Address abstract_unix(std::string_view name);
  // "10.0.0.2", "fe80::1%eth0"; port in host order.
  static Result<Address> ip(std::string_view host, std::uint16_t port);

  int family() const { return raw_.ss_family; }
  bool is_unix() const { return family() == AF_UNIX; }
  bool is_loopback() const;
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  std::string host() const;       // without the port
  std::string to_string() const;  // "10.0.0.2:4000", "[::1]:4000", "unix:@name"
  // Leading bits that both have in common; 0 between families.
  int common_prefix(const Address& other) const;
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&raw_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_storage raw_{};
  socklen_t size_ = 0;
};

struct Interface {
  std::string name;
  Address address;  // port 0
};

// Does an interface name pass `filter`? NCCL's syntax: "eth,ib" prefixes, "=eth0" exact names,
// "^lo,docker" all but these prefixes, "^=lo" all but this name. An IP address matches itself.
bool interface_matches(std::string_view filter, const Interface& interface);

// The addresses of all interfaces that are up and pass `filter`; without a filter all but docker's
// and virbr's bridges. Loopback addresses come last, and only if the filter asks for them or there
// is nothing else.
Result<std::vector<Interface>> usable_interfaces(std::string_view filter);

}  // namespace ff
