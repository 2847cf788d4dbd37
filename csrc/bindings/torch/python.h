// SPDX-License-Identifier: Apache-2.0
//
// The interpreter, seen from threads that may or may not hold its lock (the GIL).
#pragma once

#include <Python.h>

namespace hfreduce::adapter {

// Releases the GIL for its lifetime if this thread holds it. Everything that can block stands under
// one of these: destructors and constructors are called with the GIL, other virtuals without.
class NoGil {
 public:
  NoGil();
  ~NoGil();
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  PyThreadState* saved_ = nullptr;
};

// False once the interpreter has begun to exit: no thread of ours may ask for the GIL any more.
bool python_alive();
void python_is_leaving();

// Remembers the thread that runs Python's signal handlers; called once, by that thread or not.
void find_main_thread();
bool on_main_thread();

// Runs pending signal handlers. True when one of them raised (Ctrl-C raises KeyboardInterrupt): the
// exception then waits for raise_interrupt() on this thread.
bool interrupted();
// Throws what interrupted() found, if anything.
void raise_interrupt();

}  // namespace hfreduce::adapter
