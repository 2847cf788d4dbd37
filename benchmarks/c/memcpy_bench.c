// SPDX-License-Identifier: Apache-2.0
//
// The limit of the memory: N processes at once copy `bytes` from one private buffer to another.
//   memcpy_bench --ranks 2 --sizes 67108864 [--budget-ms 150] [--min-iters 10]
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"
#include "work.h"

typedef struct {
  atomic_int arrived;
  atomic_int generation;
  double values[256];
} Shared;

typedef struct {
  Shared* shared;
  int rank;
  int ranks;
  void* from;
  void* to;
  size_t bytes;
} Subject;

// Yields while it waits, so that more processes than cores still pass.
static void barrier(void* context) {
  Subject* s = context;
  Shared* shared = s->shared;
  const int generation = atomic_load(&shared->generation);
  if (atomic_fetch_add(&shared->arrived, 1) == s->ranks - 1) {
    atomic_store(&shared->arrived, 0);
    atomic_fetch_add(&shared->generation, 1);
    return;
  }
  for (int spins = 0; atomic_load(&shared->generation) == generation; ++spins) {
    if (spins > 1000) sched_yield();
  }
}

static double max_over_ranks(void* context, double value) {
  Subject* s = context;
  s->shared->values[s->rank] = value;
  barrier(s);
  double result = 0;
  for (int r = 0; r < s->ranks; ++r) {
    if (s->shared->values[r] > result) result = s->shared->values[r];
  }
  barrier(s);
  return result;
}

static void operation(void* context) {
  Subject* s = context;
  memcpy(s->to, s->from, s->bytes);
  __asm__ volatile("" : : "r"(s->to) : "memory");  // the copy is wanted although nobody reads it
}

static void run(Subject* s, const BenchPlan* plan) {
  if (posix_memalign(&s->from, 4096, s->bytes) != 0 ||
      posix_memalign(&s->to, 4096, s->bytes) != 0) {
    fprintf(stderr, "no memory for %zu bytes\n", s->bytes);
    exit(1);
  }
  memset(s->from, 1, s->bytes);
  memset(s->to, 2, s->bytes);
  const BenchSubject subject = {s, barrier, operation, max_over_ranks};
  const BenchResult result = bench_measure(&subject, plan);
  if (s->rank == 0) bench_print("memcpy", "fp32", s->ranks, s->bytes, "private", &result);
  free(s->from);
  free(s->to);
}

int main(int argc, char** argv) {
  WorkArgs args = work_args(argc, argv);
  const BenchPlan plan = {args.budget_ms * 1e3, args.min_iters, 20000};
  const int ranks = atoi(work_arg(argc, argv, "--ranks", "2"));
  Shared* shared =
      mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || ranks < 1 || ranks > 256) {
    fprintf(stderr, "cannot run %d ranks\n", ranks);
    return 1;
  }
  int rank = 0;
  for (; rank < ranks - 1; ++rank) {  // each child leaves the loop with its own rank
    const pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) break;
  }
  const int is_parent = rank == ranks - 1;
  char* rest = NULL;
  for (char* size = strtok_r(args.sizes, ",", &rest); size; size = strtok_r(NULL, ",", &rest)) {
    Subject s = {shared, rank, ranks, NULL, NULL, strtoull(size, NULL, 10)};
    run(&s, &plan);
  }
  int failed = 0;
  int status = 0;
  while (is_parent && wait(&status) > 0) failed |= status;
  return failed != 0;
}
