// SPDX-License-Identifier: Apache-2.0
//
// Times the collectives of libhfreduce as c/mpi_bench.c times those of an MPI library. One process
// a rank:
//   hfreduce_bench --rank 0 --ranks 2 --store FOLDER [--ops allreduce] [--sizes 8,1024]
//                  [--dtype fp32|bf16|fp16] [--buffers private|arena] [--budget-ms 150]
//                  [--min-iters 10]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "../c/loop.h"
#include "../c/work.h"
#include "hfreduce/bootstrap/file_store.h"
#include "hfreduce/communicator.h"
#include "hfreduce/options.h"

namespace {

using hfreduce::Bytes;
using hfreduce::Communicator;
using hfreduce::ConstBytes;
using hfreduce::DType;
using hfreduce::RedOp;
using hfreduce::Reduction;

void die(const std::string& message) {
  std::fprintf(stderr, "hfreduce_bench: %s\n", message.c_str());
  std::exit(1);
}

void require(const ff::Status& status) {
  if (!status.ok()) die(status.to_string());
}

DType dtype_of(WorkType type) {
  switch (type) {
    case kWorkBf16:
      return DType::kBFloat16;
    case kWorkFp16:
      return DType::kFloat16;
    case kWorkFp32:
      break;
  }
  return DType::kFloat32;
}

// Every operation is waited for at once.
constexpr hfreduce::OpOptions kWait{.timeout = {}, .will_wait = true};

struct Subject {
  Communicator* comm = nullptr;
  Work work{};
  std::vector<ConstBytes> in_parts;  // one a rank
  std::vector<Bytes> out_parts;
};

void barrier(void* context) {
  require(static_cast<Subject*>(context)->comm->barrier(kWait)->wait());
}

double max_over_ranks(void* context, double value) {
  double result = value;
  require(static_cast<Subject*>(context)
              ->comm->allreduce(&value, &result, 1, DType::kFloat64, Reduction{RedOp::kMax})
              ->wait());
  return result;
}

hfreduce::RequestPtr start(const Subject& s) {
  const Work& w = s.work;
  const DType dtype = dtype_of(w.type);
  const std::size_t count = w.bytes / work_element(w.type);
  switch (w.op) {
    case kWorkBroadcast:
      return s.comm->broadcast(w.in, count, dtype, 0, kWait);
    case kWorkAllgather:
      return s.comm->allgather({w.in, w.in_bytes}, s.out_parts, dtype, kWait);
    case kWorkReduceScatter:
      return s.comm->reduce_scatter(s.in_parts, {w.out, w.out_bytes}, dtype, Reduction{}, kWait);
    case kWorkAlltoall:
      return s.comm->alltoall(s.in_parts, s.out_parts, dtype, kWait);
    case kWorkAllreduce:
    case kWorkUnknown:
      break;
  }
  return s.comm->allreduce(w.in, w.out, count, dtype, Reduction{}, kWait);
}

void operation(void* context) { require(start(*static_cast<Subject*>(context))->wait()); }

std::shared_ptr<void> buffer(Communicator* comm, const std::string& kind, std::size_t bytes) {
  if (kind == "arena") {
    std::shared_ptr<void> memory = comm->allocate(bytes);
    if (!memory) die("the arena has no room for " + std::to_string(bytes) + " bytes");
    return memory;
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, 4096, bytes) != 0) die("no memory");
  return {memory, std::free};
}

void run(Communicator* comm, WorkOp op, WorkType type, const std::string& type_name,
         const std::string& buffers, std::size_t bytes, const BenchPlan& plan) {
  Subject s;
  s.comm = comm;
  s.work = work_plan(op, type, comm->rank(), comm->size(), bytes);
  Work& w = s.work;
  const std::shared_ptr<void> in = buffer(comm, buffers, w.in_bytes);
  const std::shared_ptr<void> out = work_in_place(op) ? in : buffer(comm, buffers, w.out_bytes);
  w.in = in.get();
  w.out = out.get();
  const std::size_t part = w.bytes / static_cast<std::size_t>(w.ranks);
  for (std::size_t r = 0; !work_in_place(op) && r < static_cast<std::size_t>(w.ranks); ++r) {
    if (op != kWorkAllgather) s.in_parts.push_back({static_cast<char*>(w.in) + r * part, part});
    if (op != kWorkReduceScatter)
      s.out_parts.push_back({static_cast<char*>(w.out) + r * part, part});
  }
  work_fill(&w);
  operation(&s);
  if (const std::size_t wrong = work_check(&w); wrong != 0) {
    die(std::string(kWorkNames[op]) + " of " + std::to_string(bytes) +
        " bytes: " + std::to_string(wrong) + " wrong elements");
  }
  const BenchSubject subject = {&s, barrier, operation, max_over_ranks};
  const BenchResult result = bench_measure(&subject, &plan);
  if (comm->rank() == 0) {
    bench_print(kWorkNames[op], type_name.c_str(), w.ranks, w.bytes, buffers.c_str(), &result);
  }
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

WorkType type_of(const std::string& name) {
  if (name == "fp32") return kWorkFp32;
  if (name == "bf16") return kWorkBf16;
  if (name == "fp16") return kWorkFp16;
  die("unknown type " + name);
  return kWorkFp32;
}

}  // namespace

int main(int argc, char** argv) {
  const WorkArgs args = work_args(argc, argv);
  const int rank = std::atoi(work_arg(argc, argv, "--rank", "0"));
  const int ranks = std::atoi(work_arg(argc, argv, "--ranks", "1"));
  const std::string type_name = work_arg(argc, argv, "--dtype", "fp32");
  const std::string path = work_arg(argc, argv, "--store", "");
  if (path.empty()) die("--store is missing");

  std::shared_ptr<hfreduce::Store> store;
  require(hfreduce::FileStore::open(path, &store));
  hfreduce::Options options;
  require(hfreduce::options_from_env(&options));
  std::shared_ptr<Communicator> comm;
  require(Communicator::create(store, "bench/", rank, ranks, options, &comm));

  const BenchPlan plan = {args.budget_ms * 1e3, args.min_iters, 20000};
  for (const std::string& op : split(args.ops)) {
    if (work_op(op.c_str()) == kWorkUnknown) die("unknown operation " + op);
    for (const std::string& buffers : split(work_arg(argc, argv, "--buffers", "private"))) {
      for (const std::string& size : split(args.sizes)) {
        run(comm.get(), work_op(op.c_str()), type_of(type_name), type_name, buffers,
            std::strtoull(size.c_str(), nullptr, 10), plan);
      }
    }
  }
  comm->shutdown();
  return 0;
}
