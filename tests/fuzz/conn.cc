// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/wire/conn.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "target.h"

namespace {

using namespace hfreduce;

// Takes all that comes. Bulk payloads go to a place of just their length, where that is small.
class Taker final : public FrameHandler {
 public:
  Sink bulk_begins(Conn& /*conn*/, const FrameHeader& header) override {
    if (header.length > (1 << 16) || header.flags % 2 == 1) return {};
    auto place = std::make_shared<std::vector<std::byte>>(header.length);
    void* start = place->data();
    return {start, nullptr, std::move(place)};
  }
  void bulk_arrived(Conn& /*conn*/, const FrameHeader& /*header*/, Sink /*sink*/) override {}
  ff::Status control_arrived(Conn& conn, const FrameHeader& header, std::string payload,
                             std::vector<ff::UniqueFd> fds) override {
    fuzz::require(payload.size() == header.length && payload.size() <= kControlLimit);
    fuzz::require(fds.size() <= 2);
    const bool handshake = header.type <= FrameType::kRefuse;
    fuzz::require(handshake || conn.authenticated.load());
    return {};
  }
  void conn_lost(Conn& /*conn*/, const ff::Status& why) override { fuzz::require(!why.ok()); }
  void wants_write(Conn& /*conn*/, bool /*wanted*/) override {}
};

}  // namespace

// Any bytes, in pieces of any length. The first byte: is it a Unix socket, has the peer proven
// itself; the second: how the rest is cut.
FUZZ_TARGET(conn) {
  fuzz::Dice dice(data, size);
  const std::uint8_t how = dice.byte();
  const std::size_t piece = 1 + dice.byte() * 3;
  int ends[2];
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  ff::UniqueFd peer(ends[1]);
  Taker taker;
  auto conn = std::make_shared<Conn>(ff::UniqueFd(ends[0]), how % 2 == 1, "a peer", &taker);
  conn->authenticated.store((how & 2) != 0);
  std::string_view rest = dice.rest();
  while (!rest.empty() && !conn->is_lost()) {
    const ssize_t wrote =
        ::send(peer.get(), rest.data(), std::min(piece, rest.size()), MSG_NOSIGNAL);
    if (wrote <= 0) break;
    rest.remove_prefix(static_cast<std::size_t>(wrote));
    conn->pump();
  }
  peer.reset();
  conn->pump();
  fuzz::require(conn->is_lost());
  return 0;
}
