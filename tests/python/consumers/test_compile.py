# SPDX-License-Identifier: Apache-2.0
"""Functional collectives, eager and inside a compiled function."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from models import Mlp, samples, seeded, weights
from ranks import Job, compare
from torch import Tensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def mixture(x: Tensor, ranks: list[int]) -> list[Tensor]:
    """A function of collectives, with computation between them."""
    total = funcol.all_reduce(x * 2, "sum", ranks)
    largest = funcol.all_reduce(x, "max", ranks)
    rows = funcol.all_gather_tensor(x + 1, 0, ranks)
    part = funcol.reduce_scatter_tensor(rows.cos(), "sum", 0, ranks)
    exchanged = funcol.all_to_all_single(x, None, None, ranks)
    mean = funcol.all_reduce(total.sin(), "avg", ranks)
    several = funcol.all_reduce_coalesced([x, x * 3], "sum", ranks)
    return [total, largest, rows, part, exchanged, mean, *several]


def run_mixture(job: Job) -> list[Tensor]:
    function = mixture
    if job.arguments["compiler"] is not None:
        function = torch.compile(mixture, backend=job.arguments["compiler"], fullgraph=True)
    generator = torch.Generator().manual_seed(job.rank)
    x = torch.randn(4 * job.size, 3, generator=generator)
    results = function(x, list(range(job.size)))
    return [result.clone() for result in results]


@pytest.mark.parametrize("compiler", [None, "aot_eager"])
def test_functional_collectives(compiler: str | None) -> None:
    ours, gloos = compare(run_mixture, 2, {"compiler": compiler})
    torch.testing.assert_close(ours, gloos, rtol=1e-6, atol=1e-6)


@pytest.mark.long
def test_functional_collectives_through_inductor() -> None:
    ours, gloos = compare(run_mixture, 2, {"compiler": "inductor"}, timeout_s=280)
    torch.testing.assert_close(ours, gloos, rtol=1e-5, atol=1e-6)


def train_compiled(job: Job) -> dict[str, Tensor]:
    model = DistributedDataParallel(seeded(Mlp))
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x, y = samples(step, job.rank)
        F.cross_entropy(compiled(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model.module)


def test_compiled_ddp() -> None:
    ours, gloos = compare(train_compiled, 2)
    torch.testing.assert_close(ours, gloos, rtol=0, atol=0)


def traced_plain(job: Job) -> Tensor:
    """dist.all_reduce inside a compiled function becomes a functional one."""

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    return step(torch.full((5,), float(job.rank)))


def test_plain_collective_in_a_compiled_function() -> None:
    ours, gloos = compare(traced_plain, 2)
    torch.testing.assert_close(ours, gloos, rtol=0, atol=0)
    torch.testing.assert_close(ours[0], torch.full((5,), 3.0))
