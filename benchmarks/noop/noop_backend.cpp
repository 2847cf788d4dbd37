// SPDX-License-Identifier: Apache-2.0
//
// A torch.distributed backend whose collectives do nothing: the least that a call through torch
// costs, whatever a backend does. Built by the benchmark when it runs.
#include <pybind11/chrono.h>
#include <torch/extension.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace {

class NoopWork : public c10d::Work {
 public:
  explicit NoopWork(c10d::OpType type) : Work(-1, type) {}
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

class NoopBackend : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "noop"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&,
                                           const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<NoopWork>(c10d::OpType::ALLREDUCE);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    return c10::make_intrusive<NoopWork>(c10d::OpType::BARRIER);
  }
};

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>&, int rank, int size,
                                         std::chrono::milliseconds) {
  return c10::make_intrusive<NoopBackend>(rank, size);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("create", &create); }
