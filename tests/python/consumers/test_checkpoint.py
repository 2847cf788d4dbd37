# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint: save, load into another layout, and save while training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from models import Mlp, samples, seeded, weights
from ranks import BACKEND, Job, launch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def sharded(job: Job) -> nn.Module:
    model = seeded(Mlp)
    mesh = init_device_mesh("cpu", (job.size,))
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(model: nn.Module, job: Job, steps: range) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in steps:
        x, y = samples(step, job.rank)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def full(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.full_tensor().detach().clone() for name, p in model.named_parameters()}


def save_and_load(job: Job) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    model = sharded(job)
    train(model, job, range(3))
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=job.folder / "saved")
    before = full(model)
    torch.manual_seed(99)
    fresh = sharded(job)
    train(fresh, job, range(5, 6))  # so that it differs
    state = {"model": get_model_state_dict(fresh)}
    dcp.load(state, checkpoint_id=job.folder / "saved")
    set_model_state_dict(fresh, state["model"])
    return before, full(fresh)


def test_save_and_load() -> None:
    for before, after in launch(save_and_load, 2):
        torch.testing.assert_close(after, before, rtol=0, atol=0)


def save_sharded_load_replicated(job: Job) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    model = sharded(job)
    train(model, job, range(2))
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=job.folder / "saved")
    whole = Mlp()
    state = {"model": get_model_state_dict(whole)}
    dcp.load(state, checkpoint_id=job.folder / "saved")
    set_model_state_dict(whole, state["model"])
    return full(model), weights(whole)


def test_load_into_another_layout() -> None:
    for before, after in launch(save_sharded_load_replicated, 3):
        torch.testing.assert_close(after, before, rtol=0, atol=0)


def save_while_training(job: Job) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Each save's collectives run on a group of their own, beside those of training."""
    group = dist.new_group()
    model = DistributedDataParallel(seeded(Mlp))
    futures: list[Any] = []
    for save in range(3):
        train(model, job, range(3 * save, 3 * save + 3))
        if futures:
            futures[-1].result()
        at_save = weights(model.module)
        state = {"model": get_model_state_dict(model)}
        futures.append(
            dcp.async_save(state, checkpoint_id=job.folder / f"save{save}", process_group=group)
        )
    train(model, job, range(20, 30))  # the last save is under way
    futures[-1].result()
    fresh = Mlp()
    state = {"model": get_model_state_dict(fresh)}
    dcp.load(state, checkpoint_id=job.folder / "save2")
    set_model_state_dict(fresh, state["model"])
    return at_save, weights(fresh)


def test_async_save_while_training() -> None:
    for at_save, loaded in launch(save_while_training, 2):
        torch.testing.assert_close(loaded, at_save, rtol=0, atol=0)


def save_on_the_training_group(job: Job) -> str:
    """What happens when a save's collectives and training's share a group, out of step."""
    model = DistributedDataParallel(seeded(Mlp))
    try:
        for save in range(20):
            state = {"model": get_model_state_dict(model)}
            future = dcp.async_save(state, checkpoint_id=job.folder / f"save{save}")
            # Ranks reach the save's collectives at different moments of their training.
            train(model, job, range(10 * save, 10 * save + 5 + 5 * job.rank))
            future.result()
    except (RuntimeError, CheckpointException) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@pytest.mark.skipif(BACKEND == "gloo", reason="Gloo hangs here")
def test_async_save_on_the_training_group_is_a_mismatch() -> None:
    said = launch(save_on_the_training_group, 2)
    for text in said:
        assert "MismatchError" in text, said
