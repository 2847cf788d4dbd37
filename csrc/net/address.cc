// SPDX-License-Identifier: Apache-2.0
#include "net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

namespace ff {
namespace {

std::span<const std::uint8_t> ip_bytes(const sockaddr_storage& raw) {
  if (raw.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(raw);
    return {reinterpret_cast<const std::uint8_t*>(&in.sin_addr), 4};
  }
  if (raw.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(raw);
    return {reinterpret_cast<const std::uint8_t*>(&in.sin6_addr), 16};
  }
  return {};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    auto end = text.find(separator);
    std::string_view part = text.substr(0, end);
    if (!part.empty()) parts.push_back(part);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

}  // namespace

Address::Address(const sockaddr* raw, socklen_t size)
    : size_(std::min<socklen_t>(size, sizeof(raw_))) {
  std::memcpy(&raw_, raw, size_);
}

Address Address::abstract_unix(std::string_view name) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  std::size_t length = std::min(name.size(), sizeof(un.sun_path) - 1);
  std::memcpy(un.sun_path + 1, name.data(), length);
  return Address(reinterpret_cast<const sockaddr*>(&un),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length));
}

Result<Address> Address::ip(std::string_view host, std::uint16_t port) {
  std::string text(host);
  std::string scope;
  if (auto percent = text.find('%'); percent != std::string::npos) {
    scope = text.substr(percent + 1);
    text.resize(percent);
  }
  sockaddr_in in4{};
  if (::inet_pton(AF_INET, text.c_str(), &in4.sin_addr) == 1) {
    in4.sin_family = AF_INET;
    in4.sin_port = htons(port);
    return Address(reinterpret_cast<const sockaddr*>(&in4), sizeof(in4));
  }
  sockaddr_in6 in6{};
  if (::inet_pton(AF_INET6, text.c_str(), &in6.sin6_addr) == 1) {
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    if (!scope.empty()) in6.sin6_scope_id = ::if_nametoindex(scope.c_str());
    return Address(reinterpret_cast<const sockaddr*>(&in6), sizeof(in6));
  }
  return fail(Code::kInvalidArgument, "'" + std::string(host) + "' is not an IP address");
}

bool Address::is_loopback() const {
  auto bytes = ip_bytes(raw_);
  if (bytes.size() == 4) return bytes[0] == 127;
  if (bytes.size() == 16) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(raw_).sin6_addr);
  }
  return is_unix();
}

std::uint16_t Address::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(raw_).sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(raw_).sin6_port);
  return 0;
}

void Address::set_port(std::uint16_t port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(raw_).sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(raw_).sin6_port = htons(port);
}

std::string Address::host() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (is_unix()) {
    const auto& un = reinterpret_cast<const sockaddr_un&>(raw_);
    std::size_t length = size_ - offsetof(sockaddr_un, sun_path);
    return length > 0 ? "@" + std::string(un.sun_path + 1, length - 1) : std::string("@");
  }
  auto bytes = ip_bytes(raw_);
  if (bytes.empty()) return "none";
  ::inet_ntop(family(), bytes.data(), text, sizeof(text));
  std::string host(text);
  if (family() == AF_INET6) {
    char name[IF_NAMESIZE] = {};
    unsigned scope = reinterpret_cast<const sockaddr_in6&>(raw_).sin6_scope_id;
    if (scope != 0 && ::if_indextoname(scope, name) != nullptr) host += std::string("%") + name;
  }
  return host;
}

std::string Address::to_string() const {
  if (is_unix()) return "unix:" + host();
  std::string port_text = std::to_string(port());
  return family() == AF_INET6 ? "[" + host() + "]:" + port_text : host() + ":" + port_text;
}

int Address::common_prefix(const Address& other) const {
  auto a = ip_bytes(raw_);
  auto b = ip_bytes(other.raw_);
  if (a.size() != b.size()) return 0;
  int bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto difference = static_cast<std::uint8_t>(a[i] ^ b[i]);
    bits += std::countl_zero(difference);
    if (difference != 0) break;
  }
  return bits;
}

bool interface_matches(std::string_view filter, const Interface& interface) {
  bool negate = filter.starts_with('^');
  if (negate) filter.remove_prefix(1);
  bool exact = filter.starts_with('=');
  if (exact) filter.remove_prefix(1);
  for (std::string_view part : split(filter, ',')) {
    std::string_view name(interface.name);
    if (exact ? name == part : name.starts_with(part)) return !negate;
    if (interface.address.host() == part) return !negate;
  }
  return negate;
}

Result<std::vector<Interface>> usable_interfaces(std::string_view filter) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return fail(errno_status("list network interfaces", errno));
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Interface> found;
  std::vector<Interface> loopback;
  std::string seen;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    Interface interface { at->ifa_name, Address(at->ifa_addr, size) };
    seen += " " + interface.name + "=" + interface.address.host();
    bool loop = interface.address.is_loopback();
    if (filter.empty()) {
      (loop ? loopback : found).push_back(interface);
    } else if (interface_matches(filter, interface)) {
      (loop ? loopback : found).push_back(interface);
    }
  }
  if (filter.empty()) {
    std::erase_if(found, [](const Interface& i) { return interface_matches("docker,virbr", i); });
  }
  if (!filter.empty() || found.empty()) found.insert(found.end(), loopback.begin(), loopback.end());
  if (found.empty()) {
    return fail(Code::kInvalidArgument, "HFREDUCE_SOCKET_IFNAME=" + std::string(filter) +
                                            " matches no interface that is up; there are:" + seen);
  }
  return found;
}

}  // namespace ff
