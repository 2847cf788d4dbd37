// SPDX-License-Identifier: Apache-2.0
#include "hfreduce/wire/conn.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace hfreduce {
namespace {

using ff::Code;
using ff::Status;

constexpr std::size_t kBufferBytes = 64 << 10;
// A bulk payload shorter than this is copied out of the buffer; a longer rest is received in place.
constexpr std::size_t kDirectBytes = 4 << 10;
// One pump reads at most this much, so that one busy peer cannot starve the others.
constexpr std::size_t kPumpBytes = 2 << 20;
constexpr std::size_t kMaxIov = 64;
constexpr std::size_t kMaxFds = 4;

void take_descriptors(msghdr& message, std::deque<ff::UniqueFd>* out) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof(int));
      out->emplace_back(fd);
    }
  }
}

bool carries_bulk(FrameType type) { return type == FrameType::kData || type == FrameType::kEager; }

}  // namespace

Conn::Conn(ff::UniqueFd fd, bool is_unix, std::string name, FrameHandler* handler)
    : fd_(std::move(fd)),
      is_unix_(is_unix),
      name_(std::move(name)),
      handler_(handler),
      buffer_(kBufferBytes) {
  last_heard_ = ff::coarse_now().time_since_epoch().count();
}

void Conn::enqueue(const FrameHeader& header, const void* payload, Transfer* transfer,
                   const std::vector<int>& fds) {
  std::lock_guard lock(send_mu_);
  if (is_lost()) return;
  Outgoing out;
  out.header = header;
  for (int fd : fds) out.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  out.transfer = transfer;
  if (transfer != nullptr || header.length == 0) {
    out.payload = payload;
  } else {
    const auto* bytes = static_cast<const std::byte*>(payload);
    out.owned.assign(bytes, bytes + header.length);
    out.payload = nullptr;
  }
  outgoing_.push_back(std::move(out));
}

void Conn::flush() {
  std::lock_guard lock(send_mu_);
  flush_locked();
}

void Conn::flush_locked() {
  while (!outgoing_.empty() && !is_lost()) {
    std::array<iovec, kMaxIov> iov;
    std::size_t pieces = 0;
    const Outgoing& first = outgoing_.front();
    bool with_fds = !first.fds.empty() && first.sent == 0;
    for (const Outgoing& out : outgoing_) {
      if (pieces + 2 > kMaxIov) break;
      // Descriptors must leave with the first byte of their own frame.
      if (&out != &first && !out.fds.empty()) break;
      std::size_t header_sent = std::min(out.sent, sizeof(FrameHeader));
      if (header_sent < sizeof(FrameHeader)) {
        iov[pieces++] = {
            const_cast<char*>(reinterpret_cast<const char*>(&out.header)) + header_sent,
            sizeof(FrameHeader) - header_sent};
      }
      std::size_t payload_sent = out.sent - header_sent;
      if (payload_sent < out.header.length) {
        const void* data = out.owned.empty() ? out.payload : out.owned.data();
        iov[pieces++] = {const_cast<char*>(static_cast<const char*>(data)) + payload_sent,
                         out.header.length - payload_sent};
      }
      if (with_fds) break;
    }
    msghdr message{};
    message.msg_iov = iov.data();
    message.msg_iovlen = pieces;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFds)> control{};
    if (with_fds) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(sizeof(int) * first.fds.size());
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int) * first.fds.size());
      for (std::size_t i = 0; i < first.fds.size(); ++i) {
        int raw = first.fds[i].get();
        std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &raw, sizeof(int));
      }
    }
    ssize_t wrote = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!unsent_.exchange(true)) handler_->wants_write(*this, true);
        return;
      }
      // The reading side reports the loss, with whatever the peer said before it went.
      outgoing_.clear();
      ::shutdown(fd_.get(), SHUT_WR);
      return;
    }
    auto left = static_cast<std::size_t>(wrote);
    while (!outgoing_.empty()) {
      Outgoing& out = outgoing_.front();
      std::size_t rest = sizeof(FrameHeader) + out.header.length - out.sent;
      std::size_t taken = std::min(left, rest);
      out.sent += taken;
      left -= taken;
      if (taken < rest) break;
      if (out.transfer != nullptr) out.transfer->done.store(true, std::memory_order_release);
      outgoing_.pop_front();
      if (left == 0) break;
    }
  }
  if (outgoing_.empty()) {
    if (unsent_.exchange(false)) handler_->wants_write(*this, false);
    if (finishing_ && !is_lost()) ::shutdown(fd_.get(), SHUT_WR);
  }
}

bool Conn::pump() {
  std::unique_lock lock(receive_mu_, std::try_to_lock);
  if (!lock || is_lost()) return false;
  bool any = false;
  for (std::size_t total = 0; total < kPumpBytes && !is_lost();) {
    auto got = read_some();
    Status status = got ? (*got > 0 ? parse() : Status()) : got.error();
    if (!status) {
      lock.unlock();  // the handler may cancel receives on this connection
      close(status);
      return true;
    }
    if (*got == 0) break;
    any = true;
    total += *got;
  }
  if (any)
    last_heard_.store(ff::coarse_now().time_since_epoch().count(), std::memory_order_relaxed);
  return any;
}

// One receive call; the bytes got, 0 when there are none now. A long bulk payload under way is
// received in place, with what follows it going to the buffer.
ff::Result<std::size_t> Conn::read_some() {
  if (begin_ == end_) begin_ = end_ = 0;
  if (begin_ > 0 && end_ == buffer_.size()) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  std::array<iovec, 2> iov;
  std::size_t pieces = 0;
  std::size_t direct = 0;
  if (phase_ == Phase::kBulk && begin_ == end_ && sink_.data != nullptr && !sink_cancelled_) {
    std::size_t rest = header_.length - received_;
    if (rest >= kDirectBytes) {
      direct = rest;
      iov[pieces++] = {static_cast<char*>(sink_.data) + received_, rest};
    }
  }
  iov[pieces++] = {buffer_.data() + end_, buffer_.size() - end_};
  msghdr message{};
  message.msg_iov = iov.data();
  message.msg_iovlen = pieces;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFds)> control;
  if (is_unix_) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  ssize_t got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) {
    if (errno == EINTR) return read_some();
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    return ff::fail(ff::errno_status("receive from " + name_, errno));
  }
  if (got == 0) return ff::fail(Code::kPeerLost, name_ + " closed the connection");
  if (is_unix_) {
    take_descriptors(message, &fds_);
    if (fds_.size() > kMaxFds) return ff::fail(Code::kRefused, name_ + " sent stray descriptors");
  }
  auto bytes = static_cast<std::size_t>(got);
  std::size_t in_place = std::min(bytes, direct);
  received_ += in_place;
  end_ += bytes - in_place;
  return bytes;
}

Status Conn::parse() {
  for (;;) {
    if (phase_ == Phase::kBulk) {
      std::size_t take = std::min<std::uint64_t>(header_.length - received_, end_ - begin_);
      if (take > 0 && sink_.data != nullptr && !sink_cancelled_) {
        std::memcpy(static_cast<char*>(sink_.data) + received_, buffer_.data() + begin_, take);
      }
      begin_ += take;
      received_ += take;
      if (received_ < header_.length) return {};
      finish_bulk();
      continue;
    }
    if (phase_ == Phase::kControl) {
      std::size_t take = std::min<std::uint64_t>(header_.length - received_, end_ - begin_);
      control_.append(reinterpret_cast<const char*>(buffer_.data()) + begin_, take);
      begin_ += take;
      received_ += take;
      if (received_ < header_.length) return {};
      if (Status status = finish_control(); !status) return status;
      continue;
    }
    if (end_ - begin_ < sizeof(FrameHeader)) return {};
    std::memcpy(&header_, buffer_.data() + begin_, sizeof(FrameHeader));
    begin_ += sizeof(FrameHeader);
    if (Status status = header_complete(); !status) return status;
  }
}

Status Conn::header_complete() {
  auto type = static_cast<std::uint8_t>(header_.type);
  if (header_.magic != kFrameMagic || type == 0 || type > kLastFrameType) {
    return Status(Code::kRefused, name_ + " does not speak this protocol");
  }
  bool handshake = type <= static_cast<std::uint8_t>(FrameType::kRefuse);
  if (!handshake && !authenticated.load(std::memory_order_acquire)) {
    return Status(Code::kRefused, name_ + " sent a frame before proving that it knows the key");
  }
  received_ = 0;
  sink_cancelled_ = false;
  if (carries_bulk(header_.type)) {
    sink_ = handler_->bulk_begins(*this, header_);
    phase_ = Phase::kBulk;
    return {};
  }
  if (header_.length > kControlLimit) {
    return Status(Code::kRefused,
                  name_ + " sent a control frame of " + std::to_string(header_.length) + " bytes");
  }
  control_ = std::string();
  phase_ = Phase::kControl;
  return {};
}

Status Conn::finish_control() {
  phase_ = Phase::kHeader;
  received_ = 0;
  std::vector<ff::UniqueFd> fds;
  std::size_t wanted = header_.type == FrameType::kSegment        ? 2
                       : header_.type == FrameType::kGroupSegment ? 1
                                                                  : 0;
  if (fds_.size() < wanted) {
    return Status(Code::kRefused, name_ + " promised descriptors and sent none");
  }
  for (std::size_t i = 0; i < wanted; ++i) {
    fds.push_back(std::move(fds_.front()));
    fds_.pop_front();
  }
  return handler_->control_arrived(*this, header_, std::move(control_), std::move(fds));
}

void Conn::finish_bulk() {
  phase_ = Phase::kHeader;
  received_ = 0;
  Sink sink = sink_;
  sink_ = {};
  if (!sink_cancelled_) handler_->bulk_arrived(*this, header_, sink);
}

void Conn::cancel_receive(const Transfer* transfer) {
  std::lock_guard lock(receive_mu_);
  if (phase_ == Phase::kBulk && sink_.transfer == transfer) sink_cancelled_ = true;
}

void Conn::cancel_send(const Transfer* transfer) {
  std::lock_guard lock(send_mu_);
  for (Outgoing& out : outgoing_) {
    if (out.transfer != transfer) continue;
    // The frame has been promised to the stream; it goes on from a copy.
    const auto* bytes = static_cast<const std::byte*>(out.payload);
    out.owned.assign(bytes, bytes + out.header.length);
    out.transfer = nullptr;
  }
}

void Conn::close(const Status& why) {
  if (lost_.exchange(true, std::memory_order_acq_rel)) return;
  ::shutdown(fd_.get(), SHUT_RDWR);
  {
    std::lock_guard lock(send_mu_);
    outgoing_.clear();
  }
  handler_->conn_lost(*this, why);
}

void Conn::finish_sending() {
  std::lock_guard lock(send_mu_);
  finishing_ = true;
  flush_locked();
}

void Conn::abandon_in_child() { fd_.reset(); }

}  // namespace hfreduce
