# SPDX-License-Identifier: Apache-2.0
"""Ranks as forks of this process, which has imported torch once for all of them.

Importing torch takes seconds of a core, so starting eight ranks afresh in every round would cost
more time than what is measured. This process must have started no thread before it forks.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

from .cases import BenchError

PR_SET_PDEATHSIG = 1


def fork_ranks(count: int, work: Callable[[int], Any], timeout_s: float) -> list[Any]:
    """Runs work(rank) in `count` forks; returns what each returned, through JSON."""
    pids: list[int] = []
    readers: list[int] = []
    with tempfile.TemporaryFile() as err:
        try:
            for rank in range(count):
                reader, writer = os.pipe()
                sys.stdout.flush()
                sys.stderr.flush()
                pid = os.fork()
                if pid == 0:
                    _child(rank, work, writer, err.fileno())
                os.close(writer)
                pids.append(pid)
                readers.append(reader)
            return _collect(readers, time.monotonic() + timeout_s, timeout_s)
        except BenchError as error:
            _reap(pids, kill=True)
            err.seek(0)
            raise BenchError(f"{error}{_cause(err.read().decode(errors='replace'))}") from None
        finally:
            for reader in readers:
                os.close(reader)
            _reap(pids, kill=True)


def _child(rank: int, work: Callable[[int], Any], writer: int, err: int) -> None:
    """Never returns: what the parent has open or registered is none of the child's business."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.dup2(err, 2)
        os.write(writer, json.dumps(work(rank)).encode())
        code = 0
    except BaseException:  # noqa: BLE001 (the parent reads it)
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _collect(readers: list[int], deadline: float, timeout_s: float) -> list[Any]:
    texts = [b""] * len(readers)
    with selectors.DefaultSelector() as selector:
        for rank, reader in enumerate(readers):
            selector.register(reader, selectors.EVENT_READ, rank)
        while selector.get_map():
            events = selector.select(max(0.0, deadline - time.monotonic()))
            if not events:
                raise BenchError(f"not done after {timeout_s:.0f} s")
            for key, _ in events:
                chunk = os.read(key.fd, 1 << 16)
                texts[key.data] += chunk
                if not chunk:
                    selector.unregister(key.fd)
                    if not texts[key.data]:
                        raise BenchError(f"rank {key.data} failed")
    return [json.loads(text) for text in texts]


def _reap(pids: list[int], kill: bool) -> None:
    for pid in pids:
        if kill:
            os.kill(pid, signal.SIGKILL)  # a zombie at worst: it is ours until waited for
    for pid in pids:
        os.waitpid(pid, 0)
    pids.clear()


def _cause(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line and not line[0].isspace()]
    errors = [line for line in lines if "Error" in line.split(":")[0]]
    found = (errors or lines)[:1]
    return f": {found[0][:200]}" if found else ""
