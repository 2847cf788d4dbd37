// SPDX-License-Identifier: Apache-2.0
//
// What a forked child must know: threads do not survive a fork, but descriptors do. A data loader's
// worker that kept our sockets open would hide its parent's death from the other ranks, so the
// child closes them; and every call there fails with a clear error instead of hanging.
#pragma once

namespace hfreduce {

// Descriptors to close in a child. Both are thread safe; at most 16384 are tracked.
void track_fd(int fd);
void untrack_fd(int fd);
// Is this process a forked child of one that used the library?
bool in_forked_child();

}  // namespace hfreduce
