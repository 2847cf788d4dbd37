// SPDX-License-Identifier: Apache-2.0
//
// An operation made of others: inside the node through shared memory, between nodes through the
// network.
#pragma once

#include <memory>
#include <vector>

#include "hfreduce/engine/communicator_impl.h"

namespace hfreduce {

enum class StageOrder {
  kInTurn,  // each begins when the one before it is done
  kAtOnce,  // they have nothing to do with each other
};

// The stages bear the whole operation's number, so at most one of them may use a given slot of the
// inbox. With a single stage, that stage itself.
std::shared_ptr<Op> make_stages(std::shared_ptr<CommunicatorImpl> comm,
                                const OpDescriptor& descriptor, StageOrder order,
                                std::vector<std::shared_ptr<Op>> stages);

}  // namespace hfreduce
