# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.pipelining: every schedule gives one process's gradients, bit for bit."""

from __future__ import annotations

import pytest
import torch
from models import WIDTH
from ranks import Job, alone, compare
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.nn import functional as F

LAYERS, BATCH, MICRO = 4, 16, 4

# Name, stages a rank, and which rank holds a stage when it is not dealt out in turn.
SCHEDULES = {
    "ScheduleGPipe": (1, None),
    "Schedule1F1B": (1, None),
    "ScheduleInterleaved1F1B": (2, None),
    "ScheduleInterleavedZeroBubble": (2, None),
    "ScheduleZBVZeroBubble": (2, "v"),
    "ScheduleDualPipeV": (2, "v"),
}


def layers() -> nn.ModuleList:
    torch.manual_seed(11)
    return nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS))


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return (
        torch.randn(BATCH, WIDTH, generator=generator),
        torch.randn(BATCH, WIDTH, generator=generator),
    )


def gradients_of(model: nn.ModuleList) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def whole(_: Job) -> dict[str, Tensor]:
    model = layers()
    x, target = data()
    for inputs, targets in zip(x.chunk(MICRO), target.chunk(MICRO), strict=True):
        y = inputs
        for layer in model:
            y = layer(y)
        (F.mse_loss(y, targets) / MICRO).backward()
    return gradients_of(model)


def pipelined(job: Job) -> dict[str, Tensor]:
    name = job.arguments["schedule"]
    stages_a_rank, style = SCHEDULES[name]
    count = stages_a_rank * job.size
    indices = list(range(job.rank, count, job.size))
    if style == "v":
        indices = [job.rank, count - 1 - job.rank]
    model = layers()
    stages = []
    for index in indices:
        part = model[index * LAYERS // count : (index + 1) * LAYERS // count]
        stages.append(PipelineStage(nn.Sequential(*part), index, count, torch.device("cpu")))
    schedule = getattr(schedules, name)(
        stages if stages_a_rank > 1 else stages[0], MICRO, loss_fn=F.mse_loss
    )
    x, target = data()
    inputs = (x,) if 0 in indices else ()
    last = {"target": target} if count - 1 in indices else {}
    schedule.step(*inputs, **last)
    return gradients_of(model)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name: str) -> None:
    ours, gloos = compare(pipelined, 2, {"schedule": name})
    torch.testing.assert_close(ours, gloos, rtol=0, atol=0)
    reference = alone(whole)
    merged = {**ours[0], **ours[1]}
    assert set(merged) == set(reference)
    # The split backward of the zero-bubble schedules multiplies in another order.
    exact = "ZeroBubble" not in name and "DualPipe" not in name
    torch.testing.assert_close(
        merged, reference, **({"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-6})
    )
