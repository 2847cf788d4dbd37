// SPDX-License-Identifier: Apache-2.0
//
// The Python module hfreduce_adapter. Private: people use the package hfreduce.
//
// torch.distributed must have been imported before: the base classes of these classes live there.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/torch/backend.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/python.h"
#include "hfreduce/reduce/kernels.h"

namespace hfreduce::adapter {
namespace {

// How long the end of the program waits for callbacks once all groups are closed.
constexpr std::chrono::seconds kPatience{10};

// Python is about to finish: groups that are still open end now, while callbacks can still run.
void leave() {
  python_is_leaving();
  {
    const NoGil no_gil;
    close_all_groups();
    CallbackToken::wait_for_none(kPatience);
  }
  python_is_gone();
}

py::dict counters_dict() {
  const Counters counters = hfreduce::counters();
  py::dict result;
  result["operations"] = counters.operations;
  result["shm_bytes_copied"] = counters.shm_bytes_copied;
  result["net_bytes_sent"] = counters.net_bytes_sent;
  result["net_bytes_received"] = counters.net_bytes_received;
  result["net_frames_sent"] = counters.net_frames_sent;
  result["arena_operations"] = counters.arena_operations;
  return result;
}

py::list rank_infos(Backend& backend) {
  py::list result;
  for (const RankInfo& info : backend.rank_infos()) {
    py::dict rank;
    rank["rank"] = info.rank;
    rank["global_rank"] = info.global_rank;
    rank["host"] = info.host;
    rank["pid"] = info.pid;
    rank["node"] = info.node;
    rank["local_rank"] = info.local_rank;
    rank["path"] = info.path;
    result.append(rank);
  }
  return result;
}

void bind_options(py::module_& module, const py::object& base) {
  using Timeout = std::optional<std::chrono::milliseconds>;
  const auto own_timeout = [](const BackendOptions& options) {
    return options.own_timeout.value_or(options.timeout);
  };
  const auto set_own_timeout = [](BackendOptions& options, std::chrono::milliseconds timeout) {
    options.own_timeout = timeout;
    options.timeout = timeout;
  };
  const auto copy = [](const BackendOptions& options, const py::args&) {
    return c10::make_intrusive<BackendOptions>(options);
  };
  py::class_<BackendOptions, c10::intrusive_ptr<BackendOptions>>(module, "Options", base)
      .def(py::init([](Timeout timeout, std::optional<std::string> algorithm,
                       std::optional<std::uint64_t> chunk_bytes, std::optional<int> streams,
                       std::optional<std::string> interfaces, std::optional<std::string> node,
                       std::optional<std::string> zone, std::optional<bool> shm,
                       std::optional<bool> native_wire, std::optional<std::uint64_t> arena_bytes) {
             auto options = c10::make_intrusive<BackendOptions>();
             if (timeout) options->timeout = *timeout;
             options->own_timeout = timeout;
             options->algorithm = std::move(algorithm);
             options->chunk_bytes = chunk_bytes;
             options->streams = streams;
             options->interfaces = std::move(interfaces);
             options->node = std::move(node);
             options->zone = std::move(zone);
             options->shm = shm;
             options->native_wire = native_wire;
             options->arena_bytes = arena_bytes;
             hfreduce::Options resolved;
             throw_if_error(options->resolve(&resolved));
             return options;
           }),
           py::kw_only(), py::arg("timeout") = py::none(), py::arg("algorithm") = py::none(),
           py::arg("chunk_bytes") = py::none(), py::arg("streams") = py::none(),
           py::arg("interfaces") = py::none(), py::arg("node") = py::none(),
           py::arg("zone") = py::none(), py::arg("shm") = py::none(),
           py::arg("native_wire") = py::none(), py::arg("arena_bytes") = py::none())
      .def_property("timeout", own_timeout, set_own_timeout)
      // The name that torch's own options use.
      .def_property("_timeout", own_timeout, set_own_timeout)
      .def_readwrite("algorithm", &BackendOptions::algorithm)
      .def_readwrite("chunk_bytes", &BackendOptions::chunk_bytes)
      .def_readwrite("streams", &BackendOptions::streams)
      .def_readwrite("interfaces", &BackendOptions::interfaces)
      .def_readwrite("node", &BackendOptions::node)
      .def_readwrite("zone", &BackendOptions::zone)
      .def_readwrite("shm", &BackendOptions::shm)
      .def_readwrite("native_wire", &BackendOptions::native_wire)
      .def_readwrite("arena_bytes", &BackendOptions::arena_bytes)
      .def("__copy__", copy)
      .def("__deepcopy__", copy);
}

void bind_backend(py::module_& module, const py::object& base) {
  py::class_<Backend, c10::intrusive_ptr<Backend>>(module, "Backend", base)
      .def("rank_infos", &rank_infos)
      // torch calls this on ranks that are not part of a group that others split off. Those do not
      // need them.
      .def("perform_nocolor_split", [](Backend&, const py::object&) {});
}

}  // namespace

PYBIND11_MODULE(hfreduce_adapter, module) {
  const py::module_ c10d = py::module_::import("torch._C._distributed_c10d");
  const py::object base = c10d.attr("Backend");
  find_main_thread();
  watch_forks();
  bind_options(module, base.attr("Options"));
  bind_backend(module, base);

  // What torch hands to a backend's creator, and the options that the person passed if they are
  // ours. A timeout or a name in `torch_options` counts where the person's options say nothing.
  module.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
         std::chrono::milliseconds timeout, const std::string& group_name,
         std::vector<std::uint64_t> global_ranks, const c10::intrusive_ptr<BackendOptions>& options,
         const std::string& name) {
        auto own = options ? c10::make_intrusive<BackendOptions>(*options)
                           : c10::make_intrusive<BackendOptions>();
        own->timeout = timeout;
        own->group_name = group_name;
        own->global_ranks_in_group = std::move(global_ranks);
        return c10::make_intrusive<Backend>(store, rank, size, own, name);
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("group_name"),
      py::arg("global_ranks"), py::arg("options").none(true), py::arg("name"));
  module.def("counters", &counters_dict);
  module.def("isa", [] { return name_of(best_isa()); });
  module.def("leave", &leave);
}

}  // namespace hfreduce::adapter
