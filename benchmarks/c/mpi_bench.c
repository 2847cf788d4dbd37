// SPDX-License-Identifier: Apache-2.0
//
// Times an MPI library's collectives in fp32. Build with the mpicc of the library under test.
#include <mpi.h>

#include "loop.h"
#include "work.h"

typedef struct {
  Work work;
} Subject;

static void barrier(void* context) {
  (void)context;
  MPI_Barrier(MPI_COMM_WORLD);
}

static double max_over_ranks(void* context, double value) {
  (void)context;
  double result = 0;
  MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return result;
}

static void operation(void* context) {
  const Work* w = &((Subject*)context)->work;
  const int whole = (int)(w->bytes / sizeof(float));
  const int part = whole / w->ranks;
  switch (w->op) {
    case kWorkAllreduce:
      MPI_Allreduce(MPI_IN_PLACE, w->in, whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case kWorkBroadcast:
      MPI_Bcast(w->in, whole, MPI_FLOAT, 0, MPI_COMM_WORLD);
      break;
    case kWorkAllgather:
      MPI_Allgather(w->in, part, MPI_FLOAT, w->out, part, MPI_FLOAT, MPI_COMM_WORLD);
      break;
    case kWorkReduceScatter:
      MPI_Reduce_scatter_block(w->in, w->out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case kWorkAlltoall:
      MPI_Alltoall(w->in, part, MPI_FLOAT, w->out, part, MPI_FLOAT, MPI_COMM_WORLD);
      break;
    case kWorkUnknown:
      break;
  }
}

static void* buffer(size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, 4096, bytes) != 0) {
    fprintf(stderr, "no memory for %zu bytes\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return memory;
}

static void run(WorkOp op, size_t bytes, int rank, int ranks, const BenchPlan* plan) {
  Subject subject;
  subject.work = work_plan(op, kWorkFp32, rank, ranks, bytes);
  Work* w = &subject.work;
  w->in = buffer(w->in_bytes);
  w->out = work_in_place(op) ? w->in : buffer(w->out_bytes);
  work_fill(w);
  operation(&subject);
  const size_t wrong = work_check(w);
  if (wrong != 0) {
    fprintf(stderr, "rank %d: %s of %zu bytes: %zu wrong elements\n", rank, kWorkNames[op], bytes,
            wrong);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const BenchSubject s = {&subject, barrier, operation, max_over_ranks};
  const BenchResult result = bench_measure(&s, plan);
  if (rank == 0) bench_print(kWorkNames[op], "fp32", ranks, w->bytes, "private", &result);
  if (w->out != w->in) free(w->out);
  free(w->in);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  WorkArgs args = work_args(argc, argv);
  const BenchPlan plan = {args.budget_ms * 1e3, args.min_iters, 20000};
  char* ops_rest = NULL;
  for (char* op = strtok_r(args.ops, ",", &ops_rest); op; op = strtok_r(NULL, ",", &ops_rest)) {
    if (work_op(op) == kWorkUnknown) {
      fprintf(stderr, "unknown operation %s\n", op);
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    char sizes[sizeof(args.sizes)];
    memcpy(sizes, args.sizes, sizeof(sizes));
    char* rest = NULL;
    for (char* size = strtok_r(sizes, ",", &rest); size; size = strtok_r(NULL, ",", &rest)) {
      run(work_op(op), strtoull(size, NULL, 10), rank, ranks, &plan);
    }
  }
  MPI_Finalize();
  return 0;
}
