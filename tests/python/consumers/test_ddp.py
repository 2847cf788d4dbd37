# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel: the same weights as over Gloo, and as one process that sees all data."""

from __future__ import annotations

import pytest
import torch
from models import Branches, Mlp, samples, seeded, weights
from ranks import BACKEND, Job, alone, compare, launch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

STEPS = 5

OPTIONS = {
    "plain": {},
    "small_buckets": {"bucket_cap_mb": 0.002},
    "static_graph": {"static_graph": True},
    "bucket_view": {"gradient_as_bucket_view": True},
    "fp16_hook": {},
    "bf16_hook": {},
    "power_sgd_hook": {},
}


def train(job: Job) -> dict[str, Tensor]:
    variant = job.arguments["variant"]
    model = DistributedDataParallel(seeded(Mlp), **OPTIONS[variant])
    if variant == "fp16_hook":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif variant == "bf16_hook":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif variant == "power_sgd_hook":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=2
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        x, y = samples(step, job.rank)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model.module)


def train_alone(job: Job) -> dict[str, Tensor]:
    model = seeded(Mlp)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        for rank in range(job.arguments["ranks"]):
            x, y = samples(step, rank)
            (F.cross_entropy(model(x), y) / job.arguments["ranks"]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


@pytest.mark.parametrize("variant", OPTIONS)
def test_two_ranks_train_as_over_gloo(variant: str) -> None:
    ours, gloos = compare(train, 2, {"variant": variant})
    # Two numbers have one sum, whoever adds them: nothing may differ. PowerSGD's random start and
    # the orthogonalisation after it are the same on all backends too.
    torch.testing.assert_close(ours, gloos, rtol=0, atol=0)
    torch.testing.assert_close(ours[0], ours[1], rtol=0, atol=0)


@pytest.mark.skipif(BACKEND == "gloo", reason="DDP over Gloo with DETAIL crashes in torch 2.15")
def test_debug_detail_changes_nothing() -> None:
    detail = launch(
        train, 2, arguments={"variant": "plain"}, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    )
    gloos = launch(train, 2, "gloo", {"variant": "plain"})
    torch.testing.assert_close(detail, gloos, rtol=0, atol=0)


def test_four_ranks_on_two_nodes_train_as_one_process() -> None:
    ours = launch(train, 4, arguments={"variant": "plain"}, nodes=2)
    for rank in range(1, 4):
        torch.testing.assert_close(ours[rank], ours[0], rtol=0, atol=0)
    torch.testing.assert_close(ours[0], alone(train_alone, {"ranks": 4}))


def train_with_unused(job: Job) -> dict[str, Tensor]:
    model = DistributedDataParallel(seeded(Branches), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x, y = samples(step, job.rank)
        # At some steps all ranks leave the same layer out, at others only some do.
        F.cross_entropy(model(x, left=(step + job.rank * (step % 2)) % 2 == 0), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model.module)


def test_unused_parameters() -> None:
    ours, gloos = compare(train_with_unused, 2)
    torch.testing.assert_close(ours, gloos, rtol=0, atol=0)


def train_uneven(job: Job) -> tuple[dict[str, Tensor], int]:
    model = DistributedDataParallel(seeded(Mlp))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    with model.join():
        for step in range(2 + 2 * job.rank):
            x, y = samples(step, job.rank)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    return weights(model.module), steps


def test_join_with_uneven_inputs() -> None:
    ours, gloos = compare(train_uneven, 3)
    assert [steps for _, steps in ours] == [2, 4, 6]
    torch.testing.assert_close(ours, gloos)
    # join() ends with the last rank's weights on all of them.
    torch.testing.assert_close(ours[0][0], ours[2][0], rtol=0, atol=0)


def sync_batch_norm(job: Job) -> dict[str, Tensor]:
    """Buffers broadcast at every forward, and no_sync() between."""
    net = torch.nn.Sequential(seeded(Mlp), torch.nn.BatchNorm1d(5))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        with model.no_sync():
            x, y = samples(2 * step, job.rank)
            F.cross_entropy(model(x), y).backward()
        x, y = samples(2 * step + 1, job.rank)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {**weights(net), **{name: b.clone() for name, b in net.named_buffers()}}


def test_buffers_and_no_sync() -> None:
    ours, gloos = compare(sync_batch_norm, 2)
    torch.testing.assert_close(ours, gloos, rtol=0, atol=0)
