# SPDX-License-Identifier: Apache-2.0
"""The smallest allreduces: libhfreduce against the MPI libraries; the torch backend against Gloo
and against a backend that does nothing, with torch's flight recorder on and off. About 2 minutes;
--quick about 1. The no-op backend is built on the first run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness.cases import Case, Plan, format_size
from benchmarks.harness.cli import Bench, run
from benchmarks.harness.peers import Core, mpi_libraries
from benchmarks.harness.plots import Panel, bars
from benchmarks.harness.rounds import Group, Job, Samples
from benchmarks.harness.torch_peers import RECORDER_OFF, RECORDER_ON, Gloo, Hfreduce, Noop

SIZES = [8, 1 << 10]


def groups(quick: bool) -> list[Group]:
    plan = Plan(budget_ms=100 if quick else 300, min_iters=50)
    core, ours, gloo, noop, mpis = Core(), Hfreduce(), Gloo(), Noop(), mpi_libraries()
    result = []
    for layout in ("1x2", "1x4"):
        work = [Case("core", "allreduce", "fp32", layout, size) for size in SIZES]
        jobs = [Job(core, work), *(Job(mpi, work) for mpi in mpis)]
        result.append(Group(jobs, plan, f"{layout[2:]} ranks, core"))
    for mode in (RECORDER_ON, RECORDER_OFF):
        work = [Case("torch", "allreduce", "fp32", "1x2", size, mode=mode) for size in SIZES]
        jobs = [Job(contender, work) for contender in (ours, gloo, noop)]
        result.append(Group(jobs, plan, f"2 ranks, torch, {mode}"))
    return result


def plot(path: Path, samples: Samples) -> Path | None:
    return bars(
        path,
        samples,
        [
            Panel(
                "core",
                lambda case: case.layer == "core",
                lambda case: f"{case.local_ranks} ranks, {format_size(case.size)}",
            ),
            Panel(
                "through torch, 2 ranks",
                lambda case: case.layer == "torch",
                lambda case: f"{format_size(case.size)}, {case.mode.removeprefix('flight ')}",
            ),
        ],
        "median_us",
    )


BENCH = Bench("latency", __doc__, groups, plot)

if __name__ == "__main__":
    run(BENCH)
