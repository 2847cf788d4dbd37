# SPDX-License-Identifier: Apache-2.0
"""Allreduce between emulated nodes (network namespaces, so root): the torch backend against Gloo,
against a raw TCP ring, and against the rate of limited links. About 9 minutes; --quick about 2."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness.cases import Case, Plan, format_size
from benchmarks.harness.cli import Bench, run
from benchmarks.harness.peers import Core, LinkRate, TcpRing
from benchmarks.harness.plots import Panel, bars
from benchmarks.harness.rounds import Group, Job, Samples
from benchmarks.harness.torch_peers import Gloo, Hfreduce

KIB, MIB = 1 << 10, 1 << 20
LAYOUTS = ["4x1", "2x2"]
RATE = "1gbit"


def allreduces(
    layer: str, layout: str, link: str, sizes: list[int], dtypes: list[str]
) -> list[Case]:
    return [Case(layer, "allreduce", d, layout, size, link) for d in dtypes for size in sizes]


def groups(quick: bool) -> list[Group]:
    ours, gloo, core, ring, bound = Hfreduce(), Gloo(), Core(), TcpRing(), LinkRate()
    free_plan = Plan(budget_ms=60, min_iters=3) if quick else Plan(budget_ms=150, min_iters=5)
    limited_plan = Plan(budget_ms=10, min_iters=2 if quick else 3)
    free_sizes = [64 * KIB, MIB, 16 * MIB] + ([] if quick else [64 * MIB])
    limited_sizes = [16 * MIB] if quick else [16 * MIB, 64 * MIB]
    result = []
    for layout in LAYOUTS:
        nodes = f"{layout[0]}x1"
        both = allreduces("torch", layout, "veth", free_sizes, ["fp32", "bf16"])
        rings = [Case("core", "ring", "fp32", nodes, size, "veth") for size in free_sizes]
        jobs = [
            Job(ours, both),
            Job(gloo, both),
            Job(core, allreduces("core", layout, "veth", free_sizes, ["fp32"])),
            Job(ring, rings),
        ]
        result.append(Group(jobs, free_plan, f"{layout}, unlimited"))
        limited = allreduces("torch", layout, RATE, limited_sizes, ["fp32", "bf16"])
        bounds = [Case("core", "bound", "fp32", nodes, size, RATE) for size in limited_sizes]
        jobs = [
            Job(ours, limited),
            Job(gloo, [case for case in limited if case.dtype == "fp32"]),
            Job(bound, bounds),
        ]
        result.append(Group(jobs, limited_plan, f"{layout}, {RATE}"))
    eight = allreduces("torch", "8x1", "veth", [64 * KIB], ["fp32"])
    result.append(Group([Job(ours, eight), Job(gloo, eight)], free_plan, "8x1, unlimited"))
    return result


def plot(path: Path, samples: Samples) -> Path | None:
    def panel(layout: str, link: str) -> Panel:
        def accept(case: Case) -> bool:
            mine = case.layout == layout or (
                case.op in ("ring", "bound") and case.nodes == int(layout[0])
            )
            if case.op == "allreduce" and (case.layer, case.dtype) != ("torch", "fp32"):
                return False
            return mine and case.link == link

        title = f"{layout[0]} nodes x {layout[2]}, {'no limit' if link == 'veth' else link}"
        return Panel(title, accept, lambda case: format_size(case.size))

    panels = [panel(layout, link) for layout in LAYOUTS for link in ("veth", RATE)]
    return bars(path, samples, panels, "median_us")


BENCH = Bench("network", __doc__, groups, plot)

if __name__ == "__main__":
    run(BENCH)
