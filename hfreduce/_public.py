# SPDX-License-Identifier: Apache-2.0
"""What `hfreduce` offers besides the backend itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from hfreduce._adapter import load, loaded
from hfreduce._backend import register

if TYPE_CHECKING:
    from hfreduce._options import Options
    from hfreduce._types import RankInfo

__all__ = ["Options", "counters", "empty", "ranks", "register"]

_COUNTERS = (
    "operations",
    "shm_bytes_copied",
    "net_bytes_sent",
    "net_bytes_received",
    "net_frames_sent",
    "arena_operations",
)


def __getattr__(name: str) -> Any:
    if name == "Options":
        return load().Options
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def counters() -> dict[str, int]:
    """What the engine has done in this process: operations finished, bytes copied and sent."""
    module = loaded()
    if module is None:  # no group yet, so the engine has not done anything
        return dict.fromkeys(_COUNTERS, 0)
    result: dict[str, int] = module.counters()
    return result


def empty(
    *shape: int | Sequence[int],
    dtype: torch.dtype | None = None,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """An uninitialised CPU tensor in memory that the ranks of this node share.

    Collectives of `group` copy less for such tensors. When the shared arena is full, or the group
    has none, the tensor lies in ordinary memory and works all the same. It outlives the group.
    """
    sizes = _sizes(shape)
    backend = _backend(group)
    flat: torch.Tensor = backend.allocate_tensor(
        math.prod(sizes), dtype=dtype or torch.get_default_dtype(), device=torch.device("cpu")
    )
    return flat.view(sizes)


def ranks(group: dist.ProcessGroup | None = None) -> list[RankInfo]:
    """Where the ranks of `group` run, and over what this rank reaches each of them."""
    result: list[RankInfo] = _backend(group).rank_infos()
    return result


def _sizes(shape: tuple[int | Sequence[int], ...]) -> list[int]:
    sizes: list[int] = []
    for item in shape:
        sizes.extend([item] if isinstance(item, int) else item)
    return sizes


def _backend(group: dist.ProcessGroup | None) -> Any:
    pg = group or dist.group.WORLD
    if pg is None:
        raise ValueError("there is no process group; call init_process_group first")
    adapter = load()
    for device in pg._device_types:
        backend = pg._get_backend(device)
        # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps backends.
        backend = getattr(backend, "wrapped_pg", backend)
        if isinstance(backend, adapter.Backend):
            return backend
    raise ValueError(
        "the group has no hfreduce backend; make it with backend='hfreduce' or 'cpu:hfreduce'"
    )
