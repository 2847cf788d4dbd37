# SPDX-License-Identifier: Apache-2.0
"""DTensor: redistribution, and a transformer block split over ranks."""

from __future__ import annotations

import pytest
import torch
from models import WIDTH, Mlp, samples, seeded
from ranks import Job, alone, compare
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def gradients(job: Job) -> dict[str, Tensor]:
    model = seeded(Mlp)
    if job.backend is not None:
        mesh = init_device_mesh("cpu", (job.size,))
        parallelize_module(model, mesh, PLAN)
    x, y = samples(0, 0)
    F.cross_entropy(model(x), y).backward()
    found = {}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert gradient is not None
        found[name] = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
    return found


def test_block_split_over_ranks() -> None:
    ours, gloos = compare(gradients, 2)
    torch.testing.assert_close(ours, gloos)
    torch.testing.assert_close(ours[0], alone(gradients))


def redistribute(job: Job) -> dict[str, Tensor]:
    mesh = init_device_mesh("cpu", (job.size,))
    generator = torch.Generator().manual_seed(3)
    whole = torch.randn(2 * WIDTH, 7, generator=generator)  # 7: uneven over the ranks
    found = {}
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])  # all-to-all
    found["columns"] = columns.full_tensor()
    part = DTensor.from_local(whole * (job.rank + 1), mesh, [Partial()])
    found["sum"] = part.redistribute(mesh, [Replicate()]).to_local()
    found["scattered"] = part.redistribute(mesh, [Shard(0)]).full_tensor()
    largest = DTensor.from_local(whole * (job.rank + 1), mesh, [Partial("max")])
    found["max"] = largest.full_tensor()
    mean = DTensor.from_local(whole * (job.rank + 1), mesh, [Partial("avg")])
    found["avg"] = mean.full_tensor()
    flags = distribute_tensor(whole > 0, mesh, [Shard(0)])
    found["bool"] = flags.full_tensor()
    torch.testing.assert_close(found["columns"], whole, rtol=0, atol=0)
    torch.testing.assert_close(found["avg"], whole * (job.size + 1) / 2)
    return found


@pytest.mark.parametrize("size", [2, 4])
def test_redistribution(size: int) -> None:
    ours, gloos = compare(redistribute, size)
    torch.testing.assert_close(ours, gloos)
