# SPDX-License-Identifier: Apache-2.0
"""HFReduce: a torch.distributed backend that reduces on the CPU.

    torch.distributed.init_process_group(backend="hfreduce")

needs no import of this package; torch finds the backend by itself. What is here is for those who
want more: options, errors by type, tensors in memory that the ranks of a node share, counters.

Importing this package is cheap and does not import torch: torch imports it when it starts. Each
name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hfreduce._options import Options
    from hfreduce._public import counters, empty, ranks, register
    from hfreduce.errors import (
        AbortedError,
        Error,
        InvalidArgumentError,
        MismatchError,
        PeerError,
        RefusedError,
        ResourceError,
        TimeoutError,
        UnsupportedError,
    )

__version__ = "0.1.0"

__all__ = [
    "AbortedError",
    "Error",
    "InvalidArgumentError",
    "MismatchError",
    "Options",
    "PeerError",
    "RefusedError",
    "ResourceError",
    "TimeoutError",
    "UnsupportedError",
    "counters",
    "empty",
    "ranks",
    "register",
]

_PUBLIC = {"Options", "counters", "empty", "ranks", "register"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module("hfreduce._public" if name in _PUBLIC else "hfreduce.errors")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
