// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/store.h"

#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "bindings/torch/python.h"

namespace hfreduce::adapter {
namespace {

// How long one wait on the store may last: between two waits Ctrl-C is noticed.
constexpr std::chrono::milliseconds kSlice{500};

// How often a file is looked at.
constexpr std::chrono::milliseconds kPoll{10};

// Runs `body` and turns what it throws into a Status.
template <class Body>
ff::Status guarded(const std::string& key, const Body& body) {
  try {
    body();
    return {};
  } catch (const c10::Error& error) {
    return {
        ff::Code::kIo, std::string("the store: ") + error.what_without_backtrace(), {{"key", key}}};
  } catch (py::error_already_set& error) {
    const py::gil_scoped_acquire gil;  // also for the destruction of what the error holds
    ff::Status status(ff::Code::kIo, std::string("the store: ") + error.what(), {{"key", key}});
    error.restore();
    PyErr_Clear();
    return status;
  } catch (const std::exception& error) {
    return {ff::Code::kIo, std::string("the store: ") + error.what(), {{"key", key}}};
  }
}

// A connection of our own where the store has connections: a wait must not hold up the program's
// other users of the same one.
c10::intrusive_ptr<c10d::Store> own_connection(c10::intrusive_ptr<c10d::Store> store) {
  c10::intrusive_ptr<c10d::Store> own;
  if (guarded("", [&] { own = store->clone(); }).ok() && own) return own;
  return store;
}

bool is_file(c10d::Store& store) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(&store);
  if (prefixed == nullptr) return dynamic_cast<c10d::FileStore*>(&store) != nullptr;
  return dynamic_cast<c10d::FileStore*>(prefixed->getUnderlyingNonPrefixStore().get()) != nullptr;
}

}  // namespace

TorchStore::TorchStore(c10::intrusive_ptr<c10d::Store> store)
    : store_(own_connection(std::move(store))), is_file_(is_file(*store_)) {}

ff::Status TorchStore::set(const std::string& key, const std::string& value) {
  return guarded(key,
                 [&] { store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
}

ff::Status TorchStore::get(const std::string& key, std::chrono::milliseconds timeout,
                           std::string* value) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    const Clock::time_point start = Clock::now();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - start);
    // Zero would mean "for ever" to some stores.
    const auto slice = std::clamp(left, std::chrono::milliseconds(1), kSlice);
    ff::Status status = guarded(key, [&] {
      wait(key, slice);
      const std::vector<std::uint8_t> bytes = store_->get(key);
      value->assign(bytes.begin(), bytes.end());
    });
    // Stores do not agree on how they report that a wait ran out; the clock knows.
    if (status.ok() || Clock::now() - start < slice) return status;
    if (on_main_thread() && interrupted()) {
      return {ff::Code::kAborted, "interrupted while waiting for the other ranks", {{"key", key}}};
    }
    if (left <= slice) return {ff::Code::kTimeout, status.message(), {{"key", key}}};
  }
}

void TorchStore::wait(const std::string& key, std::chrono::milliseconds timeout) {
  if (!is_file_) {
    store_->wait({key}, timeout);
    return;
  }
  // A wait of torch's FileStore counts in whole seconds, however short its timeout.
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!store_->check({key})) {
    if (std::chrono::steady_clock::now() >= deadline) throw std::runtime_error("timed out");
    std::this_thread::sleep_for(std::min(timeout, kPoll));
  }
}

ff::Status TorchStore::add(const std::string& key, std::int64_t amount, std::int64_t* value) {
  return guarded(key, [&] { *value = store_->add(key, amount); });
}

ff::Status TorchStore::remove(const std::string& key) {
  return guarded(key, [&] { store_->deleteKey(key); });
}

ff::Status TorchStore::fresh_prefix(const std::string& name, int rank, std::string* prefix) {
  std::int64_t meeting = 0;
  ff::Status status = add(name + "/meetings/" + std::to_string(rank), 1, &meeting);
  *prefix = name + "/" + std::to_string(meeting);
  return status;
}

}  // namespace hfreduce::adapter
