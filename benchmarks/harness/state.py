# SPDX-License-Identifier: Apache-2.0
"""Where the benchmarks keep what they build and install, and how they build it."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .launch import run_quietly

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "benchmarks"
STATE = ROOT / ".state" / "bench"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def compile_c(source: str, name: str, compiler: Sequence[str], extra: Sequence[str] = ()) -> Path:
    """Builds benchmarks/c/`source` as `name`, unless it was built from the same text before."""
    headers = sorted((SOURCES / "c").glob("*.h"))
    digest = hashlib.sha256(repr([*compiler, *extra]).encode())
    for path in [SOURCES / "c" / source, *headers]:
        digest.update(path.read_bytes())
    program = STATE / "bin" / f"{name}-{digest.hexdigest()[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_suffix(f".{os.getpid()}")
        command = [*compiler, "-O2", str(SOURCES / "c" / source), "-o", str(partial), *extra]
        run_quietly(command, f"building {name}")
        partial.rename(program)
    return program


@functools.cache
def build_core() -> Path:
    """Builds libhfreduce and the C++ benchmark; returns the benchmark's program."""
    build = STATE / "build"
    build.mkdir(parents=True, exist_ok=True)
    with open(build / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start = time.monotonic()
        configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja"]
        configure += ["-DCMAKE_BUILD_TYPE=Release", "-DFF_BUILD_BENCHMARKS=ON"]
        run_quietly(configure, "configuring libhfreduce")
        compile_ = ["cmake", "--build", str(build), "--target", "hfreduce_bench"]
        run_quietly(compile_, "building libhfreduce", timeout_s=1200)
        if time.monotonic() - start > 5:
            say(f"built libhfreduce in {time.monotonic() - start:.0f} s")
    return build / "benchmarks" / "hfreduce_bench"
