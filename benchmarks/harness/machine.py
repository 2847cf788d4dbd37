# SPDX-License-Identifier: Apache-2.0
"""What a result was measured on."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from typing import Any

from .state import say


def describe() -> dict[str, Any]:
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "simd": _simd(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": _installed("torch"),
        "settings": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(("HFREDUCE_", "GLOO_", "OMPI_", "MPICH_", "I_MPI_"))
        },
        "load_at_start": round(os.getloadavg()[0], 2),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def warn_if_busy() -> None:
    load = os.getloadavg()[0]
    if load > 0.5:
        say(f"warning: the machine is busy (load {load:.1f}): ratios will be off, not only times")


def _field(path: str, name: str) -> str:
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return "unknown"


def _simd() -> str:
    flags = _field("/proc/cpuinfo", "flags").split()
    known = ("avx2", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")
    return " ".join(name for name in known if name in flags)


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
