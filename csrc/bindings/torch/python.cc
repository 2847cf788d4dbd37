// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/python.h"

#include <pthread.h>
#include <torch/csrc/Exceptions.h>

#include <atomic>
#include <exception>

namespace hfreduce::adapter {
namespace {

std::atomic<bool> g_alive{true};
std::atomic<unsigned long> g_main_thread{0};
thread_local std::exception_ptr t_interrupt;

}  // namespace

NoGil::NoGil() {
  if (Py_IsInitialized() && PyGILState_Check()) saved_ = PyEval_SaveThread();
}

NoGil::~NoGil() {
  if (saved_ != nullptr) PyEval_RestoreThread(saved_);
}

bool python_alive() { return g_alive.load(std::memory_order_acquire); }

void python_is_leaving() { g_alive.store(false, std::memory_order_release); }

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
