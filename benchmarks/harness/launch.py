# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of one measurement and never leaves one behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .cases import BenchError


@dataclass(frozen=True)
class Command:
    argv: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)


def run_together(commands: Sequence[Command], timeout_s: float) -> list[dict[str, Any]]:
    """Starts all, waits for all, and returns the JSON lines that they printed.

    As soon as one fails, or at the timeout, all are killed with their children.
    """
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            for command in commands:
                process = subprocess.Popen(
                    list(command.argv),
                    env={**os.environ, **command.env},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
                running.append(process)
            _wait_for_all(running, timeout_s)
        except BenchError as error:
            _kill_all(running)
            raise BenchError(f"{error}{_tail(err)}") from None
        finally:
            _kill_all(running)
        out.seek(0)
        lines = out.read().decode(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def run_quietly(argv: Sequence[str], what: str, timeout_s: float = 600.0) -> str:
    """Runs a set-up step; a failure becomes one error with the end of its output."""
    try:
        done = subprocess.run(
            list(argv), check=False, capture_output=True, text=True, timeout=timeout_s
        )
    except FileNotFoundError:
        raise BenchError(f"{what}: {argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise BenchError(f"{what}: not done after {timeout_s:.0f} s") from None
    if done.returncode != 0:
        text = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        first = next((i for i, line in enumerate(lines) if "error" in line.lower()), -1)
        raise BenchError(f"{what}: {' '.join(lines[first:][:2])}")
    return done.stdout


def _wait_for_all(running: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    left = list(running)
    while left:
        for process in list(left):
            code = process.poll()
            if code is None:
                continue
            left.remove(process)
            if code != 0:
                name = os.path.basename(str(process.args[0]))  # type: ignore[index]
                raise BenchError(f"{name} exited with {code}")
        if time.monotonic() > deadline:
            raise BenchError(f"not done after {timeout_s:.0f} s")
        if left:
            time.sleep(0.01)


def _kill_all(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in running:
        if process.poll() is None:
            # Only while it runs is the number of its session surely its own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _tail(err: Any) -> str:
    err.seek(0)
    lines = [line.strip() for line in err.read().decode(errors="replace").splitlines()]
    lines = [line for line in lines if line and not set(line) <= set("-=*")]
    return f": {lines[0][:200]}" if lines else ""
