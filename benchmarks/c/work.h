// SPDX-License-Identifier: Apache-2.0
//
// What is measured: the operations, their buffers and the check that results are right. Included by
// C and by C++ programs, so that every library does the same work on the same data.
//
// Size means the bytes of the largest buffer that a rank holds:
//   allreduce       in place, `bytes`
//   broadcast       `bytes`, from rank 0
//   allgather       in bytes / n, out `bytes`
//   reduce_scatter  in `bytes`, out bytes / n
//   alltoall        in and out `bytes`
#ifndef BENCHMARKS_C_WORK_H_
#define BENCHMARKS_C_WORK_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
  kWorkAllreduce,
  kWorkBroadcast,
  kWorkAllgather,
  kWorkReduceScatter,
  kWorkAlltoall,
  kWorkUnknown,
} WorkOp;

static const char* const kWorkNames[] = {"allreduce", "broadcast", "allgather", "reduce_scatter",
                                         "alltoall"};

typedef enum { kWorkFp32, kWorkBf16, kWorkFp16 } WorkType;

typedef struct {
  WorkOp op;
  WorkType type;
  int rank;
  int ranks;
  size_t bytes;  // of the largest buffer, a multiple of ranks * element
  size_t in_bytes;
  size_t out_bytes;
  void* in;
  void* out;  // the same as `in` for allreduce and broadcast
} Work;

static inline WorkOp work_op(const char* name) {
  for (int i = 0; i < kWorkUnknown; ++i) {
    if (strcmp(name, kWorkNames[i]) == 0) return (WorkOp)i;
  }
  return kWorkUnknown;
}

static inline size_t work_element(WorkType type) { return type == kWorkFp32 ? 4 : 2; }

static inline int work_in_place(WorkOp op) { return op == kWorkAllreduce || op == kWorkBroadcast; }

// Sizes of the buffers of `bytes` a rank; the caller provides the memory.
static inline Work work_plan(WorkOp op, WorkType type, int rank, int ranks, size_t bytes) {
  Work w;
  const size_t unit = work_element(type) * (work_in_place(op) ? 1 : (size_t)ranks);
  memset(&w, 0, sizeof(w));
  w.op = op;
  w.type = type;
  w.rank = rank;
  w.ranks = ranks;
  w.bytes = bytes < unit ? unit : bytes / unit * unit;
  w.in_bytes = op == kWorkAllgather ? w.bytes / (size_t)ranks : w.bytes;
  w.out_bytes = op == kWorkReduceScatter ? w.bytes / (size_t)ranks : w.bytes;
  return w;
}

// Small whole numbers: exact in every type as long as their sum over the ranks stays below 256.
static inline unsigned work_value(int rank, size_t i) {
  return (unsigned)(((size_t)rank * 5 + i) % 31);
}

static inline void work_store(WorkType type, void* data, size_t i, unsigned value) {
  const float f = (float)value;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (type == kWorkFp32) {
    ((float*)data)[i] = f;
  } else if (type == kWorkBf16) {
    ((uint16_t*)data)[i] = (uint16_t)(bits >> 16);
  } else {  // fp16 of a whole number below 2048: exponent rebased, mantissa cut, both exact
    ((uint16_t*)data)[i] =
        value == 0 ? 0 : (uint16_t)((((bits >> 23) - 112) << 10) | ((bits >> 13) & 0x3FF));
  }
}

static inline void work_fill(Work* w) {
  const size_t element = work_element(w->type);
  const size_t n = w->in_bytes / element;
  for (size_t i = 0; i < n; ++i) work_store(w->type, w->in, i, work_value(w->rank, i));
  if (!work_in_place(w->op)) memset(w->out, 0, w->out_bytes);
}

static inline unsigned work_expected(const Work* w, size_t i) {
  const size_t part = w->bytes / work_element(w->type) / (size_t)w->ranks;
  unsigned sum = 0;
  switch (w->op) {
    case kWorkAllreduce:
      for (int r = 0; r < w->ranks; ++r) sum += work_value(r, i);
      return sum;
    case kWorkReduceScatter:
      for (int r = 0; r < w->ranks; ++r) sum += work_value(r, (size_t)w->rank * part + i);
      return sum;
    case kWorkBroadcast:
      return work_value(0, i);
    case kWorkAllgather:
      return work_value((int)(i / part), i % part);
    default:  // all to all: rank r's part for us
      return work_value((int)(i / part), (size_t)w->rank * part + i % part);
  }
}

// Number of elements of the result that are wrong, after one operation on what work_fill() wrote.
// Leaves zeros behind, so that sums repeated in place stay finite.
static inline size_t work_check(Work* w) {
  const size_t element = work_element(w->type);
  const size_t n = w->out_bytes / element;
  size_t wrong = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t want = 0;
    work_store(w->type, &want, 0, work_expected(w, i));
    wrong += memcmp((const char*)w->out + i * element, &want, element) != 0;
  }
  memset(w->in, 0, w->in_bytes);
  return wrong;
}

// The command line shared by the programs:
//   --ops a,b  --sizes 8,1024  --budget-ms 150  --min-iters 10
typedef struct {
  char ops[256];
  char sizes[1024];
  double budget_ms;
  int min_iters;
} WorkArgs;

static inline const char* work_arg(int argc, char** argv, const char* name, const char* fallback) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return fallback;
}

static inline WorkArgs work_args(int argc, char** argv) {
  WorkArgs args;
  snprintf(args.ops, sizeof(args.ops), "%s", work_arg(argc, argv, "--ops", "allreduce"));
  snprintf(args.sizes, sizeof(args.sizes), "%s", work_arg(argc, argv, "--sizes", "8"));
  args.budget_ms = atof(work_arg(argc, argv, "--budget-ms", "150"));
  args.min_iters = atoi(work_arg(argc, argv, "--min-iters", "10"));
  return args;
}

#endif  // BENCHMARKS_C_WORK_H_
