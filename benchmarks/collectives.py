# SPDX-License-Identifier: Apache-2.0
"""Allgather, reduce-scatter, broadcast and all-to-all on one host, against the MPI libraries and
against Gloo. About 8 minutes; --quick about 2."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness.cases import Case, Plan, format_size
from benchmarks.harness.cli import Bench, run
from benchmarks.harness.peers import Core, mpi_libraries
from benchmarks.harness.plots import Panel, bars
from benchmarks.harness.rounds import Group, Job, Samples
from benchmarks.harness.torch_peers import Gloo, Hfreduce

OPS = ["allgather", "reduce_scatter", "broadcast", "alltoall"]
SIZES = [1 << 20, 16 << 20]


def groups(quick: bool) -> list[Group]:
    plan = Plan(budget_ms=60, min_iters=5) if quick else Plan(budget_ms=200, min_iters=9)
    core, ours, gloo, mpis = Core(), Hfreduce(), Gloo(), mpi_libraries()
    result = []
    for layout in ("1x2", "1x4"):
        work = {
            layer: [Case(layer, op, "fp32", layout, size) for op in OPS for size in SIZES]
            for layer in ("core", "torch")
        }
        jobs = [Job(core, work["core"]), *(Job(mpi, work["core"]) for mpi in mpis)]
        result.append(Group(jobs, plan, f"{layout[2:]} ranks, core"))
        jobs = [Job(ours, work["torch"]), Job(gloo, work["torch"])]
        result.append(Group(jobs, plan, f"{layout[2:]} ranks, torch"))
    return result


def plot(path: Path, samples: Samples) -> Path | None:
    def panel(layer: str, layout: str) -> Panel:
        return Panel(
            f"{layout[2:]} ranks, {'through torch' if layer == 'torch' else 'core'}",
            lambda case: (case.layer, case.layout) == (layer, layout),
            lambda case: f"{case.op} {format_size(case.size)}",
        )

    panels = [panel(layer, layout) for layer in ("core", "torch") for layout in ("1x2", "1x4")]
    return bars(path, samples, panels, "median_us")


BENCH = Bench("collectives", __doc__, groups, plot)

if __name__ == "__main__":
    run(BENCH)
