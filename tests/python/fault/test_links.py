# SPDX-License-Identifier: Apache-2.0
"""A network that fails: cables pulled, connections that only one side believes in. Each rank lives
in a network namespace of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import Place, init_group, run, run_fine

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools import netns

pytestmark = pytest.mark.skipif(
    netns.unavailable() is not None, reason=str(netns.unavailable() or "")
)
TIMEOUT_S = 5.0


def join(place: Place) -> None:
    netns.enter(place.arguments["namespaces"][place.rank])
    init_group(place, timeout=timedelta(seconds=TIMEOUT_S))
    dist.all_reduce(torch.ones(100_000))


def pull(place: Place) -> None:
    """Rank 0 pulls rank 1's cable, at the switch, so that neither host sees its own link fail."""
    place.meet("working")
    if place.rank == 0:
        command = ["nsenter", f"--net={place.arguments['switch']}", "ip", "link", "set", "port1"]
        subprocess.run([*command, "down"], check=True)
    place.meet("pulled")


def cut_off(place: Place) -> tuple[str, float]:
    import hfreduce

    join(place)
    pull(place)
    start = time.monotonic()
    with pytest.raises(hfreduce.TimeoutError) as caught:
        dist.all_reduce(torch.ones(100_000))
    elapsed = time.monotonic() - start
    with pytest.raises(hfreduce.TimeoutError):
        dist.barrier()  # at once, and for the same cause
    assert time.monotonic() - start < elapsed + 0.5
    return str(caught.value), elapsed


def namespaces(nodes: netns.Namespaces, count: int) -> dict[str, object]:
    return {"namespaces": [nodes.path(n) for n in range(count)], "switch": nodes.switch_path()}


def test_a_rank_behind_a_dead_link_is_unreachable() -> None:
    with netns.Namespaces(2) as nodes:
        results = run_fine(
            cut_off,
            2,
            backend=None,
            arguments=namespaces(nodes, 2),
            env={"HFREDUCE_SHM": "0"},
        )
    for rank, (message, elapsed) in enumerate(results):
        assert f"rank {1 - rank}" in message and "unreachable since" in message, message
        assert TIMEOUT_S - 0.5 < elapsed < TIMEOUT_S + 1.0


def interrupted(place: Place) -> float:
    """The cable is out for two seconds: slower than usual, and nothing else."""
    join(place)
    pull(place)
    work = dist.all_reduce(data := torch.ones(1_000_000), async_op=True)
    time.sleep(2)
    if place.rank == 0:
        command = ["nsenter", f"--net={place.arguments['switch']}", "ip", "link", "set", "port1"]
        subprocess.run([*command, "up"], check=True)
    work.wait()
    return data.sum().item()


def test_a_link_that_comes_back_costs_time_only() -> None:
    with netns.Namespaces(2) as nodes:
        sums = run_fine(
            interrupted,
            2,
            backend=None,
            arguments=namespaces(nodes, 2),
            env={"HFREDUCE_SHM": "0"},
        )
    assert sums == [2_000_000.0, 2_000_000.0]


def half_open(place: Place) -> str:
    """Rank 1 is gone, and the cable is out, so that no word of it reaches rank 0: only silence
    tells."""
    import hfreduce

    join(place)
    pull(place)
    if place.rank == 1:
        os._exit(0)  # its FIN is lost like everything else
    with pytest.raises(hfreduce.TimeoutError) as caught:
        dist.all_reduce(torch.ones(100_000))
    return str(caught.value)


def test_a_half_open_connection_is_found_at_the_timeout() -> None:
    with netns.Namespaces(2) as nodes:
        ranks = run(
            half_open,
            2,
            backend=None,
            arguments=namespaces(nodes, 2),
            env={"HFREDUCE_SHM": "0"},
        )
    assert ranks[0].fine, ranks[0].error
    assert "rank 1" in ranks[0].value and "unreachable since" in ranks[0].value
