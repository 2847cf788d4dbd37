# SPDX-License-Identifier: Apache-2.0
"""Small models and training loops that the consumers' tests share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

WIDTH, CLASSES = 24, 5


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.norm(x + self.down(torch.relu(self.up(x)))))
        return y


class Branches(nn.Module):
    """Uses one of two layers a step, so that the other one's gradients never come."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(WIDTH, WIDTH)
        self.right = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, left: bool) -> Tensor:
        y: Tensor = self.out((self.left if left else self.right)(x))
        return y


def samples(step: int, rank: int, count: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(count, WIDTH, generator=generator)
    return x, torch.randint(CLASSES, (count,), generator=generator)


def seeded(make: type[nn.Module], **arguments: Any) -> nn.Module:
    torch.manual_seed(7)
    return make(**arguments)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}
