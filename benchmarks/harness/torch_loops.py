# SPDX-License-Identifier: Apache-2.0
"""The timed loops of c/loop.h and the work of c/work.h, through torch.distributed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch
import torch.distributed as dist

from .cases import ELEMENT_BYTES, BenchError, Case, Plan

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MAX_ITERS = 20000

# Torch 2.14 gave these names without "tensor"; the old ones warn there.
ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def measure_cases(cases: list[Case], plan: Plan, collective: bool = True) -> list[dict[str, Any]]:
    """One result a case. `collective` is false for a backend that does nothing."""
    results = []
    for case in cases:
        operation, check = _work(case)
        operation()
        if collective:
            wrong = check()
            if wrong:
                raise BenchError(f"{case.describe()}: {wrong} wrong elements")
        results.append(_measure(operation, plan, collective))
    return results


def _work(case: Case) -> tuple[Callable[[], Any], Callable[[], int]]:
    """The operation, and a check of its first result that leaves zeros in the input."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dtype = DTYPES[case.dtype]
    count = max(1, case.size // ELEMENT_BYTES[case.dtype])
    if case.op not in ("allreduce", "broadcast"):
        count = max(1, count // ranks) * ranks
    part = count // ranks

    # Small whole numbers: exact in every type as long as their sum stays below 256.
    def pattern(of_rank: int, begin: int) -> torch.Tensor:
        return (of_rank * 5 + begin + torch.arange(31)) % 31

    def tiled(values: torch.Tensor, length: int) -> torch.Tensor:
        return values.to(dtype).repeat(length // 31 + 1)[:length].clone()

    def values(of_rank: int, begin: int, length: int) -> torch.Tensor:
        return tiled(pattern(of_rank, begin), length)

    def total(begin: int, length: int) -> torch.Tensor:
        return tiled(torch.stack([pattern(r, begin) for r in range(ranks)]).sum(0), length)

    def everyone(begin: int, length: int) -> torch.Tensor:
        return torch.cat([values(r, begin, length) for r in range(ranks)])

    inputs = values(rank, 0, part if case.op == "allgather" else count)
    outputs = inputs
    if case.op == "allreduce":
        expected = total(0, count)
        operation = lambda: dist.all_reduce(inputs)
    elif case.op == "broadcast":
        expected = values(0, 0, count)
        operation = lambda: dist.broadcast(inputs, 0)
    elif case.op == "allgather":
        outputs = torch.zeros(count, dtype=dtype)
        expected = everyone(0, part)
        operation = lambda: ALL_GATHER(outputs, inputs)
    elif case.op == "reduce_scatter":
        outputs = torch.zeros(part, dtype=dtype)
        expected = total(rank * part, part)
        operation = lambda: REDUCE_SCATTER(outputs, inputs)
    elif case.op == "alltoall":
        outputs = torch.zeros(count, dtype=dtype)
        expected = everyone(rank * part, part)
        operation = lambda: dist.all_to_all_single(outputs, inputs)
    else:
        raise BenchError(f"unknown operation {case.op}")

    def check() -> int:
        wrong = int((outputs != expected).sum())
        inputs.zero_()
        return wrong

    return operation, check


def _measure(operation: Callable[[], Any], plan: Plan, collective: bool) -> dict[str, Any]:
    """As bench_measure() of c/loop.h."""
    barrier: Callable[[], Any] = dist.barrier if collective else (lambda: None)
    agree = _max_over_ranks if collective else (lambda value: value)
    budget_us = plan.budget_ms * 1e3

    def back_to_back(iters: int) -> float:
        barrier()
        start = perf_counter_ns()
        for _ in range(iters):
            operation()
        return (perf_counter_ns() - start) / iters / 1e3

    gc.collect()
    gc.disable()
    try:
        back_to_back(1)
        each = agree(back_to_back(1))
        more = int(min(max(budget_us / 10 / each, 1), MAX_ITERS))
        if more >= 3:
            each = agree(back_to_back(more))
        iters = int(min(max(budget_us / each, plan.min_iters), MAX_ITERS))
        samples = []
        for _ in range(iters):
            barrier()
            start = perf_counter_ns()
            operation()
            samples.append(perf_counter_ns() - start)
        b2b_us = back_to_back(iters)
    finally:
        gc.enable()
    samples.sort()
    middle = (samples[(iters - 1) // 2] + samples[iters // 2]) / 2
    p99 = samples[int(0.99 * (iters - 1) + 0.5)]
    return {"median_us": middle / 1e3, "b2b_us": b2b_us, "p99_us": p99 / 1e3, "iters": iters}


def _max_over_ranks(value: float) -> float:
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor.item())
