# SPDX-License-Identifier: Apache-2.0
"""Runs a function on several ranks and brings back what each returned.

Ranks are forked from a server that has imported torch once, so a launch costs tenths of a second
instead of seconds. A launch passes when every rank returned, exited cleanly and, where hfreduce is
the backend, had operations finished by our engine.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

BACKEND = os.environ.get("HFREDUCE_TEST_BACKEND", "hfreduce")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "torch.distributed",
        "torch.distributed.fsdp",
        "torch.distributed.tensor.parallel",
        "torch.distributed.pipelining",
        "torch.distributed.checkpoint",
        "torch._dynamo",
    ]
)


@dataclass(frozen=True)
class Job:
    """What a rank is told."""

    rank: int
    size: int
    backend: str | None  # None: alone, without a group
    folder: Path  # shared by the ranks of a launch, empty at its start
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    size: int
    backend: str | None
    nodes: int = 1  # emulated: consecutive ranks, as evenly as may be
    env: dict[str, str] = field(default_factory=dict)
    timeout_s: float = 90.0
    init: dict[str, Any] = field(default_factory=dict)  # more arguments of init_process_group


def launch(
    body: Callable[[Job], Any],
    size: int = 2,
    backend: str | None = BACKEND,
    arguments: dict[str, Any] | None = None,
    **options: Any,
) -> list[Any]:
    """Returns the results of `body(job)`, by rank."""
    plan = Launch(size, backend, **options)
    with tempfile.TemporaryDirectory(prefix="hfreduce-test-") as folder:
        # The rendezvous lies beside the folder that the ranks see as theirs.
        (Path(folder) / "shared").mkdir()
        pipes, processes = [], []
        for rank in range(size):
            job = Job(rank, size, backend, Path(folder) / "shared", arguments or {})
            ours, theirs = _context.Pipe()
            process = _context.Process(
                target=_run_rank, args=(body, job, plan, f"{folder}/rendezvous", theirs)
            )
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        try:
            return _collect(pipes, processes, plan)
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()


def compare(
    body: Callable[[Job], Any], size: int = 2, arguments: dict[str, Any] | None = None, **more: Any
) -> tuple[list[Any], list[Any]]:
    """The results over the backend under test and over Gloo."""
    ours = launch(body, size, BACKEND, arguments, **more)
    theirs = launch(body, size, "gloo", arguments, **more)
    return ours, theirs


def alone(body: Callable[[Job], Any], arguments: dict[str, Any] | None = None) -> Any:
    """The result of one process without a group."""
    return launch(body, 1, None, arguments)[0]


def _collect(pipes: list[Any], processes: list[Any], plan: Launch) -> list[Any]:
    deadline = time.monotonic() + plan.timeout_s
    results: dict[int, Any] = {}
    failures: dict[int, str] = {}
    open_pipes = dict(zip(pipes, range(len(pipes)), strict=True))
    while open_pipes:
        left = deadline - time.monotonic()
        ready = multiprocessing.connection.wait(list(open_pipes), timeout=max(0.0, left))
        if not ready:
            missing = sorted(open_pipes.values())
            raise AssertionError(f"ranks {missing} did not return within {plan.timeout_s} s")
        for pipe in ready:
            rank = open_pipes.pop(pipe)
            try:
                fine, value = pickle.loads(pipe.recv_bytes())
            except EOFError:
                processes[rank].join()
                fine, value = False, f"exited with code {processes[rank].exitcode}"
            (results if fine else failures)[rank] = value
        if failures:
            # The others are likely to be waiting for the one that failed: what they say within a
            # moment helps, what they say after a timeout does not.
            deadline = min(deadline, time.monotonic() + 3.0)
            if deadline <= time.monotonic():
                break
    if failures:
        text = "\n".join(f"--- rank {rank}: {failures[rank]}" for rank in sorted(failures))
        raise AssertionError(f"{len(failures)} of {plan.size} ranks failed\n{text}")
    for pipe in pipes:
        pipe.close()  # ranks that wait for the last one may go
    for rank, process in enumerate(processes):
        process.join(timeout=20)
        assert process.exitcode == 0, f"rank {rank} returned, then exited with {process.exitcode}"
    return [results[rank] for rank in range(plan.size)]


def _run_rank(
    body: Callable[[Job], Any], job: Job, plan: Launch, rendezvous: str, pipe: Any
) -> None:
    faulthandler.enable()
    os.environ.update(plan.env)
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(job.rank)
    os.environ["WORLD_SIZE"] = os.environ["LOCAL_WORLD_SIZE"] = str(job.size)
    if plan.nodes > 1:
        os.environ["HFREDUCE_NODE"] = f"node{job.rank * plan.nodes // job.size}"
    torch.set_num_threads(1)
    try:
        dist.set_debug_level_from_env()
        if job.backend is not None:
            dist.init_process_group(
                job.backend,
                init_method=f"file://{rendezvous}",
                rank=job.rank,
                world_size=job.size,
                timeout=timedelta(seconds=30),
                **plan.init,
            )
        value = body(job)
        if job.backend is not None and "hfreduce" in job.backend:
            import hfreduce

            assert hfreduce.counters()["operations"] > 0, "our engine finished no operation"
        if job.backend != "gloo" and dist.is_initialized():
            dist.destroy_process_group()
        outcome = (True, value)
    except BaseException:  # noqa: BLE001 - whatever it is, the test's process shall print it
        outcome = (False, traceback.format_exc())
    with contextlib.suppress(BrokenPipeError):
        pipe.send_bytes(pickle.dumps(outcome))
    if not outcome[0]:
        os._exit(1)  # past destructors that might wait for peers
    if job.backend == "gloo":
        # Gloo aborts now and then when a future drops the last reference to a group on Gloo's own
        # thread ("Resource deadlock avoided"): no group of its is ever destroyed here. The process
        # stays until the last rank has returned, since others may still be served by it.
        pipe.poll(plan.timeout_s)
        os._exit(0)
