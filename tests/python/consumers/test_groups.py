# SPDX-License-Identifier: Apache-2.0
"""Groups beside the default one, meshes, objects, point to point, and torch's own checks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, Job, compare, launch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh


def value(job: Job) -> Tensor:
    return torch.arange(6.0) + 10 * job.rank


def sums_of(job: Job, groups: list[Any]) -> list[Tensor | None]:
    found: list[Tensor | None] = []
    for group in groups:
        if group in (None, dist.GroupMember.NON_GROUP_MEMBER):
            found.append(None)
            continue
        x = value(job)
        dist.all_reduce(x, group=group)
        found.append(x)
    return found


def overlapping_groups(job: Job) -> list[Tensor | None]:
    members = [[0, 2], [3, 1], [1, 2, 3], [0, 1, 2, 3]]
    return sums_of(job, [dist.new_group(ranks) for ranks in members])


def test_new_group() -> None:
    ours, gloos = compare(overlapping_groups, 4, nodes=2)
    torch.testing.assert_close(ours, gloos, rtol=0, atol=0)
    torch.testing.assert_close(ours[0][0], 2 * torch.arange(6.0) + 20)
    assert ours[1][0] is None


def unused_and_dropped_groups(job: Job) -> Tensor:
    for _ in range(10):
        group = dist.new_group([0, 1])
        if job.rank == 0:
            continue  # dropped without use
        del group
    group = dist.new_group([1, 2])
    dist.destroy_process_group(group) if job.rank else None
    x = value(job)
    dist.all_reduce(x)
    return x


def test_groups_that_are_dropped() -> None:
    ours, gloos = compare(unused_and_dropped_groups, 3)
    torch.testing.assert_close(ours, gloos, rtol=0, atol=0)


def split(job: Job) -> list[Tensor | None]:
    dist.barrier()
    group = dist.split_group(split_ranks=[[0, 1], [2]] if job.arguments["uneven"] else [[0, 2]])
    return sums_of(job, [group])


@pytest.mark.skipif(BACKEND == "gloo", reason="not bound to a device")
@pytest.mark.parametrize("uneven", [False, True])
def test_split_group(uneven: bool) -> None:
    ours = launch(split, 4, arguments={"uneven": uneven}, init={"device_id": torch.device("cpu:0")})
    base = torch.arange(6.0)
    expected = (
        [2 * base + 10, 2 * base + 10, base + 20, None]
        if uneven
        else [2 * base + 20, None, 2 * base + 20, None]
    )
    torch.testing.assert_close([found[0] for found in ours], expected)


def mesh(job: Job) -> list[Tensor | None]:
    grid = init_device_mesh(
        "cpu",
        (2, job.size // 2),
        mesh_dim_names=("outer", "inner"),
        backend_override={"outer": BACKEND, "inner": "gloo"},
    )
    outer, inner = grid.get_group("outer"), grid.get_group("inner")
    assert dist.get_backend(outer) == BACKEND
    assert dist.get_backend(inner) == "gloo"
    return sums_of(job, [outer, inner])


def test_backend_of_a_mesh_dimension() -> None:
    ours = launch(mesh, 4)
    base = torch.arange(6.0)
    for rank, (outer, inner) in enumerate(ours):
        torch.testing.assert_close(outer, 2 * base + 10 * (rank % 2 + rank % 2 + 2))
        torch.testing.assert_close(inner, 2 * base + 10 * (1 if rank < 2 else 5))


def objects(job: Job) -> list[Any]:
    mine = {"rank": job.rank, "text": "x" * (1 + 1000 * job.rank), "set": {job.rank}}
    gathered: list[Any] = [None] * job.size
    dist.all_gather_object(gathered, mine)
    at_root: list[Any] | None = [None] * job.size if job.rank == 1 else None
    dist.gather_object(mine, at_root, dst=1)
    told = [mine, None] if job.rank == 2 else [None, None]
    dist.broadcast_object_list(told, src=2)
    handed: list[Any] = [None]
    parcels = [f"for {rank}" for rank in range(job.size)] if job.rank == 0 else None
    dist.scatter_object_list(handed, parcels, src=0)
    if job.rank == 0:
        dist.send_object_list([mine], dst=1)
    received: list[Any] = [None]
    if job.rank == 1:
        dist.recv_object_list(received, src=0)
    return [gathered, at_root, told, handed, received]


def test_objects() -> None:
    ours, gloos = compare(objects, 3)
    assert ours == gloos
    assert ours[1][1][2]["set"] == {2}


def ring(job: Job) -> list[Tensor]:
    """Every rank sends to both neighbours at once and receives from both."""
    after, before = (job.rank + 1) % job.size, (job.rank - 1) % job.size
    got = [torch.empty(6), torch.empty(6)]
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, value(job), after, tag=1),
            dist.P2POp(dist.isend, value(job) + 1, before, tag=2),
            dist.P2POp(dist.irecv, got[0], before, tag=1),
            dist.P2POp(dist.irecv, got[1], after, tag=2),
        ]
    )
    for work in works:
        work.wait()
    if job.rank == 0:
        last = torch.empty(6)
        sources = sorted(dist.recv(last, tag=9) for _ in range(job.size - 1))
        assert sources == list(range(1, job.size))
    else:
        dist.send(value(job), 0, tag=9)
    return got


def test_point_to_point() -> None:
    ours, gloos = compare(ring, 3)
    torch.testing.assert_close(ours, gloos, rtol=0, atol=0)
    torch.testing.assert_close(ours[0][0], torch.arange(6.0) + 20)


def coalesced(job: Job) -> list[Tensor]:
    tensors = [value(job) * factor for factor in (1, 2, 3)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    return tensors


@pytest.mark.skipif(BACKEND == "gloo", reason="Gloo does not coalesce")
def test_coalescing_manager() -> None:
    ours = launch(coalesced, 2)
    for tensors in ours:
        expected = [factor * (2 * torch.arange(6.0) + 10) for factor in (1.0, 2.0, 3.0)]
        torch.testing.assert_close(tensors, expected)


def detail(job: Job) -> tuple[Tensor, str]:
    """torch's own checker wraps the backend; it must see shapes as they are."""
    x = value(job)
    dist.all_reduce(x)
    parts = [torch.empty(6) for _ in range(job.size)]
    dist.all_gather(parts, x)
    try:
        dist.all_reduce(torch.zeros(5 + job.rank))
    except RuntimeError as error:
        return parts[1], str(error)
    return parts[1], "no error"


def test_debug_detail() -> None:
    ours, gloos = compare(detail, 2, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    for (x, said), (gloo_x, gloo_said) in zip(ours, gloos, strict=True):
        torch.testing.assert_close(x, gloo_x, rtol=0, atol=0)
        assert "Detected mismatch between collectives on ranks" in said
        assert "Detected mismatch between collectives on ranks" in gloo_said


def monitored(job: Job) -> str:
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    try:
        if job.rank != 1:
            dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_monitored_barrier_names_who_is_missing() -> None:
    ours = launch(monitored, 3)
    assert "1" in ours[0]
    assert "monitored" in ours[0].lower()
    assert "no error" not in (ours[0], ours[2])
