# SPDX-License-Identifier: Apache-2.0
"""Runs a function as several ranks, each a process of its own, and collects what became of each.

Unlike a launcher for training, this one expects ranks to fail: what a rank returned, raised or died
of is all there for the test to look at, and no rank outlives the test.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

# Ranks are forked from a server that has imported torch once and has no thread and no group.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch.distributed"])


@dataclass
class Rank:
    """What became of a rank."""

    number: int
    value: Any = None
    error: str | None = None  # traceback of what it raised
    exit_code: int | None = None  # negative: the signal that ended it

    @property
    def fine(self) -> bool:
        return self.error is None and self.exit_code == 0


@dataclass(frozen=True)
class Place:
    """Where a rank finds itself."""

    rank: int
    size: int
    folder: Path  # the ranks of one run share it
    arguments: dict[str, Any] = field(default_factory=dict)

    def meet(self, name: str, timeout_s: float = 30.0) -> None:
        """Waits for the other ranks without any torch or network: by files."""
        self.leave_mark(f"{name}.{self.rank}")
        for rank in range(self.size):
            self.await_mark(f"{name}.{rank}", timeout_s)

    def leave_mark(self, name: str) -> None:
        (self.folder / name).touch()

    def await_mark(self, name: str, timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not (self.folder / name).exists():
            assert time.monotonic() < deadline, f"nobody left the mark {name}"
            time.sleep(0.005)


def run(
    body: Callable[[Place], Any],
    size: int = 2,
    *,
    backend: str | None = "hfreduce",
    env: dict[str, str] | None = None,
    env_of_rank: Callable[[int], dict[str, str]] | None = None,
    arguments: dict[str, Any] | None = None,
    init: dict[str, Any] | None = None,
    timeout_s: float = 60.0,
) -> list[Rank]:
    """Runs `body(place)` on `size` ranks. None as `backend`: the body makes its own group."""
    with tempfile.TemporaryDirectory(prefix="hfreduce-test-") as folder:
        ranks = [Rank(number) for number in range(size)]
        processes = []
        pipes = []
        for rank in range(size):
            ours, theirs = _context.Pipe(duplex=False)
            place = Place(rank, size, Path(folder), arguments or {})
            settings = {**(env or {}), **(env_of_rank(rank) if env_of_rank else {})}
            process = _context.Process(
                target=_rank_main, args=(body, place, backend, settings, init or {}, theirs)
            )
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        try:
            _collect(ranks, pipes, processes, timeout_s)
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()
    return ranks


def run_fine(body: Callable[[Place], Any], size: int = 2, **options: Any) -> list[Any]:
    """As run(), for tests in which no rank may fail; returns their values."""
    ranks = run(body, size, **options)
    wrong = [
        f"--- rank {rank.number}: exit code {rank.exit_code}\n{rank.error or ''}"
        for rank in ranks
        if not rank.fine
    ]
    assert not wrong, "\n".join(["", *wrong])
    return [rank.value for rank in ranks]


def _collect(ranks: list[Rank], pipes: list[Any], processes: list[Any], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    waiting = {pipe: number for number, pipe in enumerate(pipes)}
    while waiting:
        ready = multiprocessing.connection.wait(
            list(waiting), timeout=max(0.0, deadline - time.monotonic())
        )
        if not ready:
            break
        for pipe in ready:
            number = waiting.pop(pipe)
            try:
                ranks[number].value, ranks[number].error = pickle.loads(pipe.recv_bytes())
            except EOFError:
                ranks[number].error = "left without a word"
    for pipe, number in waiting.items():
        _ask_for_stacks(processes[number])
        ranks[number].error = f"did not return within {timeout_s} s"
        pipe.close()
    for number, process in enumerate(processes):
        process.join(timeout=0.2 if number in waiting.values() else 20.0)
        ranks[number].exit_code = process.exitcode


def _ask_for_stacks(process: Any) -> None:
    """The stuck rank prints where its threads are, for whoever reads the failed test."""
    os.kill(process.pid, signal.SIGUSR1)
    time.sleep(0.3)


def _rank_main(
    body: Callable[[Place], Any],
    place: Place,
    backend: str | None,
    env: dict[str, str],
    init: dict[str, Any],
    pipe: Any,
) -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.environ.update(env)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.set_debug_level_from_env()
    value: Any = None
    error: str | None = None
    try:
        if backend is not None:
            init_group(place, backend, **init)
        value = body(place)
        if dist.is_initialized():
            dist.destroy_process_group()
        message = pickle.dumps((value, None))
    except BaseException:  # noqa: BLE001 - the test decides what was expected
        error = traceback.format_exc()
        message = pickle.dumps((None, error))
    pipe.send_bytes(message)
    pipe.close()
    if error is not None:
        os._exit(1)  # past destructors, which might wait for ranks that the test let die


def init_group(place: Place, backend: str = "hfreduce", name: str = "group", **more: Any) -> None:
    import torch.distributed as dist

    dist.init_process_group(
        backend,
        init_method=f"file://{place.folder}/{name}",
        rank=place.rank,
        world_size=place.size,
        **{"timeout": timedelta(seconds=30), **more},
    )
