// SPDX-License-Identifier: Apache-2.0
//
// The timed loops, the same for every library under test. Included by C and by C++ programs.
//
// One measurement of one operation is two loops:
//   separate      barrier, clock, operation, clock: gives a median and a p99 per rank
//   back to back  barrier, clock, k operations, clock: gives a mean per rank
// and what is reported is the slowest rank's figure of each. The number of repetitions follows
// from a time budget and is agreed between the ranks through the library under test.
#ifndef BENCHMARKS_C_LOOP_H_
#define BENCHMARKS_C_LOOP_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
  void* context;
  void (*barrier)(void* context);
  void (*operation)(void* context);
  double (*max_over_ranks)(void* context, double value);
} BenchSubject;

typedef struct {
  double budget_us;  // of one loop
  int min_iters;
  int max_iters;
} BenchPlan;

typedef struct {
  double median_us;
  double p99_us;
  double min_us;
  double b2b_us;
  int iters;
  int b2b_iters;
} BenchResult;

static inline double bench_now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static inline int bench_compare(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

static inline int bench_clamp(double value, int low, int high) {
  if (value < low) return low;
  if (value > high) return high;
  return (int)value;
}

static inline double bench_back_to_back(const BenchSubject* s, int iters) {
  s->barrier(s->context);
  const double start = bench_now_us();
  for (int i = 0; i < iters; ++i) s->operation(s->context);
  return (bench_now_us() - start) / iters;
}

// Time of one operation, agreed by all ranks. The first operation pays for page faults and for
// connections; the second tells how many more make a trustworthy estimate.
static inline double bench_estimate(const BenchSubject* s, const BenchPlan* plan) {
  bench_back_to_back(s, 1);
  const double each = s->max_over_ranks(s->context, bench_back_to_back(s, 1));
  const int more = bench_clamp(plan->budget_us / 10 / (each + 0.01), 1, plan->max_iters);
  return more < 3 ? each : s->max_over_ranks(s->context, bench_back_to_back(s, more));
}

static inline BenchResult bench_measure(const BenchSubject* s, const BenchPlan* plan) {
  BenchResult result;
  const double each = bench_estimate(s, plan) + 0.01;
  const int iters = bench_clamp(plan->budget_us / each, plan->min_iters, plan->max_iters);
  double* samples = (double*)malloc(sizeof(double) * (size_t)iters);
  if (samples == NULL) {
    fprintf(stderr, "no memory for %d samples\n", iters);
    exit(1);
  }
  for (int i = 0; i < iters; ++i) {
    s->barrier(s->context);
    const double start = bench_now_us();
    s->operation(s->context);
    samples[i] = bench_now_us() - start;
  }
  qsort(samples, (size_t)iters, sizeof(double), bench_compare);
  const int last = iters - 1;
  result.median_us =
      s->max_over_ranks(s->context, iters % 2 ? samples[iters / 2]
                                              : (samples[iters / 2 - 1] + samples[iters / 2]) / 2);
  result.p99_us = s->max_over_ranks(s->context, samples[(int)(0.99 * last + 0.5)]);
  result.min_us = s->max_over_ranks(s->context, samples[0]);
  free(samples);
  result.iters = iters;
  result.b2b_iters = iters;
  result.b2b_us = s->max_over_ranks(s->context, bench_back_to_back(s, iters));
  return result;
}

static inline void bench_print(const char* op, const char* dtype, int ranks, uint64_t bytes,
                               const char* buffers, const BenchResult* r) {
  printf(
      "{\"op\": \"%s\", \"dtype\": \"%s\", \"ranks\": %d, \"bytes\": %llu, "
      "\"buffers\": \"%s\", \"median_us\": %.3f, \"b2b_us\": %.3f, \"p99_us\": %.3f, "
      "\"min_us\": %.3f, \"iters\": %d}\n",
      op, dtype, ranks, (unsigned long long)bytes, buffers, r->median_us, r->b2b_us, r->p99_us,
      r->min_us, r->iters);
  fflush(stdout);
}

#endif  // BENCHMARKS_C_LOOP_H_
