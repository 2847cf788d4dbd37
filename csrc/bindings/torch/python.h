// SPDX-License-Identifier: Apache-2.0
//
// The interpreter, seen from threads that may or may not hold its lock (the GIL).
#pragma once

#include <Python.h>

#include <chrono>
#include <functional>
#include <utility>

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

// The end of the program, in two steps. First it is only announced: groups are being closed, and
// what callbacks still have to do is done.
void python_is_leaving();
// Then the interpreter is gone, and no thread of ours may ask for the GIL any more.
void python_is_gone();
bool python_alive();
// Other threads that are inside this backend after the announcement are daemons. They would ask for
// the GIL, and be ended in the middle of a C++ function, which ends the program with an error. So
// they stay here until the process is gone.
void stay_if_leaving();

// Counts the callbacks that the engine has been given, from then until they have run and are gone.
// They may need the GIL (to run a person's function, to let go of tensors), so the interpreter must
// not exit while one is outstanding.
class CallbackToken {
 public:
  CallbackToken() { add(1); }
  CallbackToken(const CallbackToken&) { add(1); }
  CallbackToken& operator=(const CallbackToken&) = default;
  ~CallbackToken() { add(-1); }

  // Waits until there are none, but no longer than `timeout`.
  static void wait_for_none(std::chrono::milliseconds timeout);
  // In the child of a fork, where nobody will call.
  static void forget_all();

 private:
  static void add(int amount);
};

// Marks this thread as one that runs a callback.
class InCallback {
 public:
  InCallback();
  ~InCallback();
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

 private:
  const bool outer_;
};

// `body` as a callback for the engine.
template <class Body>
std::function<void()> callback(Body body) {
  return [body = std::move(body), token = CallbackToken()] {
    const InCallback mark;
    body();
  };
}

// Remembers the thread that runs Python's signal handlers; called once, by that thread or not.
void find_main_thread();
bool on_main_thread();

// Runs pending signal handlers. True when one of them raised (Ctrl-C raises KeyboardInterrupt): the
// exception then waits for raise_interrupt() on this thread.
bool interrupted();
// Throws what interrupted() found, if anything.
void raise_interrupt();

}  // namespace hfreduce::adapter
