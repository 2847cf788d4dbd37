# SPDX-License-Identifier: Apache-2.0
"""Fully sharded training: FSDP1, FSDP2 and HSDP, against Gloo and against one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import Mlp, samples, seeded, weights
from ranks import BACKEND, Job, alone, compare, launch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.nn import functional as F

STEPS = 4
CPU = torch.device("cpu")


def fit(model: nn.Module, job: Job) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        x, y = samples(step, job.rank)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def train_alone(job: Job) -> dict[str, Tensor]:
    model = seeded(Mlp)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ranks = job.arguments["ranks"]
    for step in range(STEPS):
        for rank in range(ranks):
            x, y = samples(step, rank)
            (F.cross_entropy(model(x), y) / ranks).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


def full_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.full_tensor().detach().clone() for name, p in model.named_parameters()}


def train_fsdp1(job: Job) -> dict[str, Tensor]:
    model = FullyShardedDataParallel(
        seeded(Mlp),
        device_id=CPU,
        use_orig_params=True,
        sharding_strategy=ShardingStrategy[job.arguments["strategy"]],
    )
    fit(model, job)
    with FullyShardedDataParallel.summon_full_params(model):
        return weights(model.module)


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
def test_fsdp1(strategy: str) -> None:
    ours, gloos = compare(train_fsdp1, 2, {"strategy": strategy})
    torch.testing.assert_close(ours, gloos, rtol=0, atol=0)
    torch.testing.assert_close(ours[0], alone(train_alone, {"ranks": 2}))


def shard(job: Job, mesh: Any = None, **options: Any) -> nn.Module:
    model = seeded(Mlp)
    mesh = init_device_mesh("cpu", (job.size,)) if mesh is None else mesh
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def train_fsdp2(job: Job) -> dict[str, Tensor]:
    model = shard(job)
    if job.arguments["from_group"]:
        for module in (model, model.up, model.down):
            module.set_allocate_memory_from_process_group_for_comm(True)
    fit(model, job)
    return full_weights(model)


@pytest.mark.parametrize("size", [2, 3])
def test_fsdp2(size: int) -> None:
    ours, gloos = compare(train_fsdp2, size, {"from_group": False})
    torch.testing.assert_close(ours, gloos)
    torch.testing.assert_close(ours[0], alone(train_alone, {"ranks": size}))
    for rank in range(1, size):
        torch.testing.assert_close(ours[rank], ours[0], rtol=0, atol=0)


@pytest.mark.skipif(BACKEND == "gloo", reason="Gloo hands out no memory")
def test_fsdp2_with_memory_of_the_group() -> None:
    ours = launch(train_fsdp2, 2, arguments={"from_group": True})
    plain = launch(train_fsdp2, 2, arguments={"from_group": False})
    torch.testing.assert_close(ours, plain, rtol=0, atol=0)


def train_low_precision(job: Job) -> dict[str, Tensor]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    model = shard(job, mp_policy=policy)
    fit(model, job)
    return full_weights(model)


def test_fsdp2_in_bfloat16() -> None:
    ours, gloos = compare(train_low_precision, 2)
    # One bfloat16 rounding of the mean either way, but where it happens is the backend's choice.
    torch.testing.assert_close(ours, gloos, rtol=2e-2, atol=2e-2)


def train_hsdp(job: Job) -> dict[str, Tensor]:
    mesh = init_device_mesh("cpu", (2, job.size // 2), mesh_dim_names=("replicate", "shard"))
    model = shard(job, mesh)
    fit(model, job)
    return full_weights(model)


def test_hsdp_on_two_nodes() -> None:
    ours, gloos = compare(train_hsdp, 4, nodes=2)
    torch.testing.assert_close(ours, gloos)
    torch.testing.assert_close(ours[0], alone(train_alone, {"ranks": 4}))


def clipped_norm(job: Job) -> float:
    """Gradient clipping reduces norms of shards over the group."""
    model = shard(job)
    x, y = samples(0, job.rank)
    F.cross_entropy(model(x), y).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    full = norm.full_tensor()
    same = [torch.zeros(()) for _ in range(job.size)]
    dist.all_gather(same, full)
    assert all(torch.equal(other, full) for other in same)
    return float(full)


def test_gradient_clipping_of_shards() -> None:
    ours, gloos = compare(clipped_norm, 2)
    assert ours == pytest.approx(gloos, rel=1e-6)
    assert ours[0] > 0
