# SPDX-License-Identifier: Apache-2.0
"""Measures collectives on the machines at hand, in the manner of nccl-tests.

    python -m hfreduce.bench                                    # 2 ranks on this host
    torchrun --nnodes 4 --nproc-per-node 8 ... -m hfreduce.bench --op all --max-bytes 256M

Size is the bytes of the largest buffer that a rank holds. Time is the mean of operations back to
back, of the slowest rank. algbw is size by time; busbw is algbw times the share of the data that
has to cross a rank's link at the least, so it can be held against the link's rate whatever the
number of ranks. #wrong counts wrong elements over all ranks, in one more operation on known values.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MAX_VALUE = 7  # inputs are whole numbers up to here: few bits, so that sums of them are exact
EXACT_BELOW = {torch.int8: 128, torch.uint8: 256, torch.bfloat16: 257, torch.float16: 2049}

# Torch 2.14 gave these names without "tensor"; the old ones warn there.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True)
class Work:
    """An operation on buffers of its own, and the result that it must leave in `output`."""

    run: Callable[[], Any]
    input: torch.Tensor
    output: torch.Tensor
    expected: Callable[[], torch.Tensor]


def _pattern(rank: int, begin: int) -> torch.Tensor:
    """The inputs repeat themselves after MAX_VALUE + 1 elements: this is how they begin."""
    return (torch.arange(begin, begin + MAX_VALUE + 1) + rank) % (MAX_VALUE + 1)


def _tiled(values: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    return values.to(dtype).repeat(count // len(values) + 1)[:count].clone()


def _values(rank: int, begin: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return _tiled(_pattern(rank, begin), count, dtype)


def _sum(begin: int, count: int, ranks: int, dtype: torch.dtype) -> torch.Tensor:
    total = torch.stack([_pattern(rank, begin) for rank in range(ranks)]).sum(0)
    return _tiled(total, count, dtype)


def _allreduce(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Work:
    data = _values(rank, 0, count, dtype)
    return Work(lambda: dist.all_reduce(data), data, data, lambda: _sum(0, count, ranks, dtype))


def _broadcast(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Work:
    data = _values(rank, 0, count, dtype)
    return Work(lambda: dist.broadcast(data, 0), data, data, lambda: _values(0, 0, count, dtype))


def _reduce(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Work:
    data = _values(rank, 0, count, dtype)
    # What the other ranks' buffers hold afterwards is not defined.
    expected = (lambda: _sum(0, count, ranks, dtype)) if rank == 0 else (lambda: data)
    return Work(lambda: dist.reduce(data, 0), data, data, expected)


def _allgather(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Work:
    part = count // ranks
    source, target = _values(rank, 0, part, dtype), torch.zeros(part * ranks, dtype=dtype)
    return Work(
        lambda: _all_gather(target, source),
        source,
        target,
        lambda: torch.cat([_values(r, 0, part, dtype) for r in range(ranks)]),
    )


def _reducescatter(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Work:
    part = count // ranks
    source, target = _values(rank, 0, part * ranks, dtype), torch.zeros(part, dtype=dtype)
    return Work(
        lambda: _reduce_scatter(target, source),
        source,
        target,
        lambda: _sum(rank * part, part, ranks, dtype),
    )


def _alltoall(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Work:
    part = count // ranks
    source = _values(rank, 0, part * ranks, dtype)
    target = torch.zeros(part * ranks, dtype=dtype)
    return Work(
        lambda: dist.all_to_all_single(target, source),
        source,
        target,
        lambda: torch.cat([_values(r, rank * part, part, dtype) for r in range(ranks)]),
    )


@dataclass(frozen=True)
class Operation:
    make: Callable[[int, int, int, torch.dtype], Work]
    bus_share: Callable[[int], float]  # of the size, that crosses a rank's link at the least
    reduces: bool = False
    divides: bool = False  # the buffer has a part for every rank


OPERATIONS = {
    "allreduce": Operation(_allreduce, lambda n: 2 * (n - 1) / n, reduces=True),
    "allgather": Operation(_allgather, lambda n: (n - 1) / n, divides=True),
    "reduce_scatter": Operation(_reducescatter, lambda n: (n - 1) / n, reduces=True, divides=True),
    "alltoall": Operation(_alltoall, lambda n: (n - 1) / n, divides=True),
    "broadcast": Operation(_broadcast, lambda n: 1.0),
    "reduce": Operation(_reduce, lambda n: 1.0, reduces=True),
}


def parse_size(text: str) -> int:
    """Bytes of "64", "64K", "64KiB", "1M", "2G"."""
    digits = text.upper().removesuffix("B").removesuffix("I")
    unit = digits[-1:] if digits[-1:] in UNITS else ""
    try:
        size = int(digits.removesuffix(unit)) * UNITS[unit]
    except ValueError:
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 64, 64K, 1M or 2G")
    return size


def sizes(smallest: int, largest: int, factor: float) -> Iterator[int]:
    size = float(smallest)
    while size <= largest:
        yield int(size)
        size *= factor


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m hfreduce.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ",".join(OPERATIONS)
    parser.add_argument("--op", default="allreduce", help=f"comma-separated, or all: {names}")
    # The short spelling is for use without torchrun, which takes --max for its own --max-restarts.
    parser.add_argument(
        "--min-bytes", "--min", type=parse_size, default=8, metavar="SIZE", help="least size (8)"
    )
    parser.add_argument(
        "--max-bytes", "--max", type=parse_size, default=64 << 20, metavar="SIZE", help="(64M)"
    )
    parser.add_argument("--factor", type=float, default=4.0, help="from a size to the next (4)")
    parser.add_argument("--dtype", default="float32", help=f"comma-separated: {','.join(DTYPES)}")
    parser.add_argument("--iters", type=int, default=20, help="timed operations a size (20)")
    parser.add_argument("--warmup", type=int, default=3, help="operations before them (3)")
    parser.add_argument("--check", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--backend", default="hfreduce", help="to compare: gloo")
    parser.add_argument("--ranks", type=int, default=2, help="on this host, without torchrun (2)")
    args = parser.parse_args(arguments)
    args.op = list(OPERATIONS) if args.op == "all" else args.op.split(",")
    args.dtype = args.dtype.split(",")
    for name, known in (("op", OPERATIONS), ("dtype", DTYPES)):
        for value in getattr(args, name):
            if value not in known:
                parser.error(f"--{name} {value}: choose from {', '.join(known)}")
    if args.factor <= 1 or args.iters < 1 or args.warmup < 0 or args.ranks < 1:
        parser.error("--factor above 1, --iters and --ranks at least 1, --warmup at least 0")
    if args.min_bytes > args.max_bytes:
        parser.error("--min-bytes is above --max-bytes")
    return args


def count_wrong(work: Work) -> int:
    """Runs the operation once on fresh buffers; the number of wrong elements on this rank."""
    work.run()
    return int((work.output != work.expected()).sum())


def measure(run: Callable[[], Any], warmup: int, iters: int) -> float:
    """Seconds of one operation, of the slowest rank."""
    for _ in range(warmup):
        run()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(iters):
        run()
    seconds = torch.tensor([(time.perf_counter() - start) / iters], dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return float(seconds.item())


def table(args: argparse.Namespace, out: Callable[[str], None]) -> int:
    """Prints a line a size; returns the number of wrong elements in all."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    out(
        f"{'size':>12} {'count':>12} {'type':>9} {'op':>15} {'time':>11} {'algbw':>8} {'busbw':>8}"
        f" {'#wrong':>7}"
    )
    out(f"{'(B)':>12} {'(elements)':>12} {'':>9} {'':>15} {'(us)':>11} {'(GB/s)':>8} {'(GB/s)':>8}")
    total_wrong, bus = 0, []
    for name in args.op:
        operation = OPERATIONS[name]
        for dtype_name in args.dtype:
            dtype = DTYPES[dtype_name]
            unit = dtype.itemsize * (ranks if operation.divides else 1)
            done = set()
            for size in sizes(args.min_bytes, args.max_bytes, args.factor):
                actual = max(1, size // unit) * unit
                if actual in done:
                    continue
                done.add(actual)
                count = actual // dtype.itemsize
                wrong = "-"
                exact = ranks * MAX_VALUE < EXACT_BELOW.get(dtype, 1 << 24)
                if args.check and (exact or not operation.reduces):
                    found = torch.tensor([count_wrong(operation.make(rank, ranks, count, dtype))])
                    dist.all_reduce(found)
                    total_wrong += int(found.item())
                    wrong = str(found.item())
                work = operation.make(rank, ranks, count, dtype)
                work.input.zero_()  # sums in place stay finite
                seconds = measure(work.run, args.warmup, args.iters)
                algbw = actual / seconds / 1e9
                busbw = algbw * operation.bus_share(ranks)
                bus.append(busbw)
                out(
                    f"{actual:>12} {count:>12} {dtype_name:>9} {name:>15} {seconds * 1e6:>11.1f}"
                    f" {algbw:>8.3f} {busbw:>8.3f} {wrong:>7}"
                )
    out(f"# average busbw {sum(bus) / len(bus):.3f} GB/s, {total_wrong} wrong elements")
    return total_wrong


def start_ranks(count: int, arguments: Sequence[str]) -> None:
    """Becomes torchrun, which starts this program once a rank. Does not return."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += [f"--nproc-per-node={count}", "-m", "hfreduce.bench"]
    launcher += [re.sub(r"^--(min|max)(?=$|=)", r"--\1-bytes", word) for word in arguments]
    os.execv(sys.executable, launcher)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    args = parse_arguments(arguments)
    if "RANK" not in os.environ:
        start_ranks(args.ranks, arguments)
    dist.init_process_group(args.backend)
    out = print_line if dist.get_rank() == 0 else (lambda _: None)
    hosts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(hosts, f"{socket.gethostname()} pid {os.getpid()}")
    out(f"# {args.backend}, torch {torch.__version__}, {len(hosts)} ranks")
    for rank, host in enumerate(hosts):
        out(f"# rank {rank}: {host}")
    wrong = table(args, out)
    dist.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


def print_line(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
