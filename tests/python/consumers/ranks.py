# SPDX-License-Identifier: Apache-2.0
"""Runs the same function over the backend under test, over Gloo, and alone.

HFREDUCE_TEST_BACKEND=gloo runs these tests over Gloo alone: what fails then is wrong with the test.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Place, run, run_fine

BACKEND = os.environ.get("HFREDUCE_TEST_BACKEND", "hfreduce")

# Imported once, by the server that ranks are forked from: each takes longer than most tests.
multiprocessing.get_context("forkserver").set_forkserver_preload(
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
    folder: Path  # shared by the ranks of a launch
    arguments: dict[str, Any]


def launch(
    body: Callable[[Job], Any],
    size: int = 2,
    backend: str | None = BACKEND,
    arguments: dict[str, Any] | None = None,
    *,
    nodes: int = 1,
    **options: Any,
) -> list[Any]:
    """The values of `body(job)` by rank; consecutive ranks share one of `nodes` emulated nodes.

    Every rank must return and exit cleanly, and where hfreduce is the backend its engine must have
    finished operations.
    """
    told = {"body": body, "backend": backend, "arguments": arguments or {}}
    if nodes > 1:
        options["env_of_rank"] = _NodeOf(nodes, size)
    if backend != "gloo":
        return run_fine(_rank, size, backend=backend, arguments=told, **options)
    with tempfile.TemporaryDirectory(prefix="hfreduce-test-") as folder:
        told["values"] = Path(folder)
        ranks = run(_rank, size, backend=backend, arguments=told, **options)
        wrong = [f"--- rank {rank.number}: {rank.error}" for rank in ranks if rank.exit_code != 0]
        assert not wrong, "\n".join(["", *wrong])
        return [pickle.loads((Path(folder) / str(rank)).read_bytes()) for rank in range(size)]


def compare(
    body: Callable[[Job], Any], size: int = 2, arguments: dict[str, Any] | None = None, **more: Any
) -> tuple[list[Any], list[Any]]:
    """The values over the backend under test and over Gloo."""
    ours = launch(body, size, BACKEND, arguments, **more)
    theirs = launch(body, size, "gloo", arguments, **more)
    return ours, theirs


def alone(body: Callable[[Job], Any], arguments: dict[str, Any] | None = None) -> Any:
    """The value of one process without a group."""
    return launch(body, 1, None, arguments)[0]


@dataclass(frozen=True)
class _NodeOf:
    nodes: int
    size: int

    def __call__(self, rank: int) -> dict[str, str]:
        return {"HFREDUCE_NODE": f"node{rank * self.nodes // self.size}"}


def _rank(place: Place) -> Any:
    told = place.arguments
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(place.rank)
    os.environ["WORLD_SIZE"] = os.environ["LOCAL_WORLD_SIZE"] = str(place.size)
    folder = place.folder / "shared"
    folder.mkdir(exist_ok=True)
    job = Job(place.rank, place.size, told["backend"], folder, told["arguments"])
    value = told["body"](job)
    if job.backend == "gloo":
        # Gloo aborts now and then when a future drops the last reference to a group on Gloo's own
        # thread ("Resource deadlock avoided"), so no group of its is ever destroyed here. All stay
        # until the last has returned, since others may still be served by them.
        (told["values"] / str(place.rank)).write_bytes(pickle.dumps(value))
        place.meet("returned")
        os._exit(0)
    if job.backend is not None and "hfreduce" in job.backend:
        import hfreduce

        assert hfreduce.counters()["operations"] > 0, "our engine finished no operation"
    return value
