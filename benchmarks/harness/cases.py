# SPDX-License-Identifier: Apache-2.0
"""A case: one piece of work that several contenders do. And what was measured of it."""

from __future__ import annotations

from dataclasses import dataclass

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1}
ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


class BenchError(RuntimeError):
    """A contender could not be set up or did not finish; the message says why."""


def parse_size(text: str) -> int:
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text[: -len(unit)].strip()) * factor)
    return int(text)


def format_size(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


@dataclass(frozen=True, order=True)
class Case:
    """Size means the bytes of the largest buffer that a rank holds."""

    layer: str  # core: a program in C or C++; torch: through torch.distributed
    op: str
    dtype: str
    layout: str  # nodes x ranks a node
    size: int
    link: str = "shm"  # shm: one host; veth: namespaces; otherwise namespaces with this rate
    buffers: str = "private"  # or arena: memory that the node's ranks share
    mode: str = ""  # anything else that tells two cases apart

    @property
    def nodes(self) -> int:
        return int(self.layout.split("x")[0])

    @property
    def local_ranks(self) -> int:
        return int(self.layout.split("x")[1])

    @property
    def ranks(self) -> int:
        return self.nodes * self.local_ranks

    def describe(self) -> str:
        nodes, ranks = self.nodes, self.local_ranks
        where = f"{ranks} ranks" if nodes == 1 else f"{nodes} nodes x {ranks}"
        if self.link not in ("shm", "veth"):
            where += f", {self.link} links"
        words = [self.op, self.dtype, format_size(self.size)] if self.size else [self.op]
        extra = [where, "through torch" if self.layer == "torch" else "core"]
        extra += [f"{self.buffers} buffers"] if self.buffers != "private" else []
        extra += [self.mode] if self.mode else []
        return f"{' '.join(words)}, {', '.join(extra)}"


@dataclass(frozen=True)
class Measure:
    """Of the slowest rank, in microseconds."""

    median_us: float  # of an operation after a barrier
    b2b_us: float  # mean of operations back to back
    p99_us: float
    iters: int

    def get(self, metric: str) -> float:
        return float(getattr(self, metric))


@dataclass(frozen=True)
class Plan:
    """How long to measure each case, in each of its two loops."""

    budget_ms: float
    min_iters: int
    timeout_s: float = 240.0


METRIC_NAMES = {"median_us": "median", "b2b_us": "back to back", "p99_us": "p99"}
