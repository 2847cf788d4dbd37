# SPDX-License-Identifier: Apache-2.0
"""Allreduce on one host: libhfreduce against the MPI libraries and memcpy, the torch backend
against Gloo. About 9 minutes; --quick about 2."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness.cases import Case, Plan
from benchmarks.harness.cli import Bench, run
from benchmarks.harness.peers import Core, Memcpy, mpi_libraries
from benchmarks.harness.plots import Panel, curves
from benchmarks.harness.rounds import Group, Job, Samples
from benchmarks.harness.torch_peers import Gloo, Hfreduce

KIB, MIB = 1 << 10, 1 << 20
SIZES = [8, KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
HALF_SIZES = [MIB, 64 * MIB]  # of the 16-bit types
MORE_RANKS_SIZES = [8, 64 * KIB, MIB, 16 * MIB, 64 * MIB]


def cases(layer: str, layout: str, sizes: list[int], dtype: str = "fp32") -> list[Case]:
    return [Case(layer, "allreduce", dtype, layout, size) for size in sizes]


def groups(quick: bool) -> list[Group]:
    plan = Plan(budget_ms=60, min_iters=5) if quick else Plan(budget_ms=200, min_iters=9)
    core, torch_ours, gloo, memcpy = Core(), Hfreduce(), Gloo(), Memcpy()
    mpis = mpi_libraries()
    two = cases("core", "1x2", SIZES)
    arena = [Case("core", "allreduce", "fp32", "1x2", 64 * MIB, buffers="arena")]
    copies = [Case("core", "memcpy", "fp32", "1x2", size) for size in (MIB, 64 * MIB)]
    four = cases("core", "1x4", MORE_RANKS_SIZES)
    torch_two = cases("torch", "1x2", SIZES)
    for dtype in ("bf16", "fp16"):
        torch_two += cases("torch", "1x2", HALF_SIZES, dtype)
    torch_four = cases("torch", "1x4", MORE_RANKS_SIZES)
    return [
        Group(
            [Job(core, two + arena), *(Job(mpi, two) for mpi in mpis), Job(memcpy, copies)],
            plan,
            "2 ranks, core",
        ),
        Group([Job(core, four), *(Job(mpi, four) for mpi in mpis)], plan, "4 ranks, core"),
        Group([Job(torch_ours, torch_two), Job(gloo, torch_two)], plan, "2 ranks, torch"),
        Group([Job(torch_ours, torch_four), Job(gloo, torch_four)], plan, "4 ranks, torch"),
    ]


def plot(path: Path, samples: Samples) -> Path | None:
    def panel(layer: str, layout: str) -> Panel:
        title = f"{layout[2:]} ranks, {'through torch' if layer == 'torch' else 'core'}"
        shown = (layer, layout, "allreduce", "fp32", "private")

        def accept(case: Case) -> bool:
            return (case.layer, case.layout, case.op, case.dtype, case.buffers) == shown

        return Panel(title, accept)

    panels = [panel("core", "1x2"), panel("core", "1x4"), panel("torch", "1x2")]
    return curves(path, samples, panels, "median_us")


BENCH = Bench("allreduce", __doc__, groups, plot)

if __name__ == "__main__":
    run(BENCH)
