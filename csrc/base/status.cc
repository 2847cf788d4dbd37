// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

namespace ff {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kTimeout:
      return "timeout";
    case Code::kPeerLost:
      return "peer lost";
    case Code::kMismatch:
      return "mismatch";
    case Code::kAborted:
      return "aborted";
    case Code::kRefused:
      return "refused";
    case Code::kResource:
      return "out of resources";
    case Code::kIo:
      return "i/o error";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

Status::Status(Code code, std::string message, Context context)
    : rep_(std::make_shared<const Rep>(Rep{code, std::move(message), std::move(context)})) {}

const std::string& Status::message() const {
  static const std::string empty;
  return rep_ ? rep_->message : empty;
}

const Status::Context& Status::context() const {
  static const Context empty;
  return rep_ ? rep_->context : empty;
}

std::string_view Status::fact(std::string_view key) const {
  for (const auto& [name, value] : context()) {
    if (name == key) return value;
  }
  return {};
}

Status Status::with(std::string key, std::string value) const {
  if (ok()) return *this;
  Context context = rep_->context;
  context.emplace_back(std::move(key), std::move(value));
  return Status(rep_->code, rep_->message, std::move(context));
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  std::string text(code_name(code()));
  text += ": ";
  text += message();
  return text;
}

}  // namespace ff
