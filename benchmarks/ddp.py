# SPDX-License-Identifier: Apache-2.0
"""A training step whose time is mostly communication, under torch's DistributedDataParallel: the
torch backend against Gloo. About 2 minutes; --quick about 1.

8 x Linear(2048, 2048), batch 4: 134 MB of gradients in buckets of 25 MiB, 2 ranks. Exposed
communication is the time of a step less the time of the same step under no_sync()."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness.cases import Case, Measure, Plan
from benchmarks.harness.cli import Bench, run
from benchmarks.harness.peers import Contender
from benchmarks.harness.place import Place
from benchmarks.harness.plots import Panel, bars
from benchmarks.harness.rounds import Group, Job, Samples
from benchmarks.harness.torch_peers import Gloo, Hfreduce, TorchBackend

LAYERS, WIDTH, BATCH, BUCKET_MB = 8, 2048, 4, 25
WARM_UP = 3

PARTS = ("DDP step", "DDP step without communication", "DDP exposed communication",
         "allreduce of all gradients")  # fmt: skip


def train(steps: int) -> dict[str, list[float]]:
    """Times of each step, in microseconds, on this rank."""
    import contextlib
    import time

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=BUCKET_MB)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(BATCH, WIDTH)

    def step(communicate: bool) -> float:
        dist.barrier()
        start = time.perf_counter()
        with contextlib.nullcontext() if communicate else model.no_sync():
            model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return (time.perf_counter() - start) * 1e6

    gradients = [torch.zeros(WIDTH * WIDTH) for _ in range(LAYERS)]

    def bare() -> float:
        dist.barrier()
        start = time.perf_counter()
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in gradients]:
            work.wait()
        return (time.perf_counter() - start) * 1e6

    times: dict[str, list[float]] = {part: [] for part in ("step", "alone", "bare")}
    for index in range(WARM_UP + steps):
        # The kinds alternate, so that a slow spell of the machine meets all of them.
        taken = {"step": step(True), "alone": step(False), "bare": bare()}
        if index >= WARM_UP:
            for part, value in taken.items():
                times[part].append(value)
    return times


def summarise(times: Sequence[float]) -> Measure:
    ordered = sorted(times)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    mean = sum(ordered) / count
    return Measure(middle, mean, ordered[int(0.99 * (count - 1) + 0.5)], count)


class Step(Contender):
    """A backend that trains, instead of running collectives."""

    def __init__(self, backend: TorchBackend) -> None:
        self._backend = backend
        self.key, self.label = backend.key, backend.label

    def prepare(self) -> None:
        self._backend.prepare()

    def run(self, cases: Sequence[Case], plan: Plan, place: Place) -> dict[Case, Measure]:
        ranks: list[dict[str, Any]] = self._backend.on_ranks(
            lambda _: train(plan.min_iters), plan, place
        )
        slowest = {}
        for part in ("step", "alone", "bare"):
            slowest[part] = max((summarise(r[part]) for r in ranks), key=lambda m: m.median_us)
        step, alone = slowest["step"], slowest["alone"]
        exposed = Measure(
            step.median_us - alone.median_us,
            step.b2b_us - alone.b2b_us,
            step.p99_us - alone.p99_us,
            step.iters,
        )
        return dict(zip(cases, (step, alone, exposed, slowest["bare"]), strict=True))


def groups(quick: bool) -> list[Group]:
    cases = [Case("torch", part, "fp32", "1x2", 0) for part in PARTS]
    plan = Plan(budget_ms=0, min_iters=6 if quick else 20)
    jobs = [Job(Step(backend), cases) for backend in (Hfreduce(), Gloo())]
    return [Group(jobs, plan, "2 ranks")]


def plot(path: Path, samples: Samples) -> Path | None:
    return bars(
        path, samples, [Panel("2 ranks", lambda _: True, lambda case: case.op)], "median_us"
    )


BENCH = Bench("ddp", __doc__, groups, plot)

if __name__ == "__main__":
    run(BENCH)
