// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/python.h"

#include <pthread.h>
#include <torch/csrc/Exceptions.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

namespace hfreduce::adapter {
namespace {

std::atomic<bool> g_alive{true};
std::atomic<bool> g_leaving{false};
std::atomic<unsigned long> g_main_thread{0};
std::atomic<int> g_callbacks{0};
thread_local std::exception_ptr t_interrupt;
thread_local bool t_in_callback = false;

std::terminate_handler g_terminate = nullptr;

// How often the end of the program looks whether callbacks are still outstanding.
constexpr std::chrono::milliseconds kLook{1};

[[noreturn]] void stay() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Before 3.14, a Python that is finishing ends each other thread that asks for the GIL by
// pthread_exit(). The guard that asks is a destructor, which that unwinding may not leave, and the
// whole program would abort. The thread stays here instead, as it would in 3.14.
[[noreturn]] void stay_or_terminate() {
  if (!on_main_thread() && !std::current_exception()) stay();
  if (g_terminate != nullptr) g_terminate();
  std::abort();
}

}  // namespace

NoGil::NoGil() {
  if (Py_IsInitialized() && PyGILState_Check()) saved_ = PyEval_SaveThread();
}

NoGil::~NoGil() {
  if (saved_ != nullptr) PyEval_RestoreThread(saved_);
}

bool python_alive() { return g_alive.load(std::memory_order_acquire); }

void python_is_gone() { g_alive.store(false, std::memory_order_release); }

void python_is_leaving() {
  if (g_leaving.exchange(true, std::memory_order_acq_rel)) return;
  g_terminate = std::set_terminate(stay_or_terminate);
}

void stay_if_leaving() {
  if (!g_leaving.load(std::memory_order_acquire) || on_main_thread() || t_in_callback) return;
  stay();
}

void CallbackToken::add(int amount) { g_callbacks.fetch_add(amount, std::memory_order_acq_rel); }

void CallbackToken::forget_all() { g_callbacks.store(0, std::memory_order_relaxed); }

void CallbackToken::wait_for_none(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (g_callbacks.load(std::memory_order_acquire) > 0) {
    if (std::chrono::steady_clock::now() > deadline) return;
    std::this_thread::sleep_for(kLook);
  }
}

InCallback::InCallback() : outer_(std::exchange(t_in_callback, true)) {}

InCallback::~InCallback() { t_in_callback = outer_; }

void find_main_thread() {
  const py::object main = py::module_::import("threading").attr("main_thread")();
  g_main_thread = main.attr("ident").cast<unsigned long>();
}

bool on_main_thread() {
  // Python's thread identifiers are those of pthreads.
  return static_cast<unsigned long>(pthread_self()) ==
         g_main_thread.load(std::memory_order_relaxed);
}

bool interrupted() {
  if (t_interrupt) return true;
  if (!python_alive()) return false;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return false;
  python_error error;
  error.persist();
  t_interrupt = std::make_exception_ptr(std::move(error));
  return true;
}

void raise_interrupt() {
  if (!t_interrupt) return;
  std::rethrow_exception(std::exchange(t_interrupt, nullptr));
}

}  // namespace hfreduce::adapter
