# SPDX-License-Identifier: Apache-2.0
"""A short run of everything that depends on the version of torch: what `compat` runs with each."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import Place, init_group, run_fine


def collectives(place: Place) -> None:
    import hfreduce

    n, me = place.size, place.rank
    x = torch.full((1000,), float(me))
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((1000,), float(sum(range(n)))))
    x = torch.full((10,), float(me), dtype=torch.bfloat16)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert x[0].item() == sum(range(n)) / n
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.5))
    x = torch.full((4,), float(me))
    dist.broadcast(x, src=n - 1)
    assert x[0] == n - 1
    x = torch.ones(4)
    dist.reduce(x, dst=0)
    parts = [torch.empty(3) for _ in range(n)]
    dist.all_gather(parts, torch.full((3,), float(me)))
    assert [part[0].item() for part in parts] == list(range(n))
    flat = torch.empty(3 * n)
    dist.all_gather_into_tensor(flat, torch.full((3,), float(me)))
    assert flat[::3].tolist() == list(range(n))
    out = torch.empty(3)
    dist.reduce_scatter_tensor(out, flat)
    assert out[0] == n * me
    dist.reduce_scatter(out, list(flat.chunk(n)))
    assert out[0] == n * me
    got = [torch.empty(2) for _ in range(n)] if me == 0 else None
    dist.gather(torch.full((2,), float(me)), got, dst=0)
    dist.scatter(out, list(flat.chunk(n)) if me == 0 else None, src=0)
    assert out[0] == me
    swapped = torch.empty(n)
    dist.all_to_all_single(swapped, torch.full((n,), float(me)))
    assert swapped.tolist() == list(range(n))
    dist.all_to_all([*torch.empty(n, 1)], [*torch.ones(n, 1)])
    ops = [
        dist.P2POp(dist.isend, torch.full((2,), float(me)), (me + 1) % n),
        dist.P2POp(dist.irecv, out[:2], (me - 1) % n),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert out[0] == (me - 1) % n
    with dist._coalescing_manager():
        for _ in range(3):
            dist.all_reduce(x)
    dist.barrier()
    objects: list[object] = [None] * n
    dist.all_gather_object(objects, {"rank": me})
    assert objects == [{"rank": r} for r in range(n)]
    sparse = torch.eye(3).to_sparse()
    dist.all_reduce(sparse)
    assert torch.equal(sparse.to_dense(), n * torch.eye(3))
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert future.then(lambda f: f.value()[0][0].item()).wait() == n
    assert hfreduce.empty(3).shape == (3,)
    assert hfreduce.counters()["operations"] > 10


def test_collectives() -> None:
    run_fine(collectives, 3)


def groups(place: Place) -> None:
    import hfreduce

    options = hfreduce.Options(timeout=timedelta(seconds=20))
    init_group(place, pg_options=options)
    for group in (
        dist.new_group(pg_options=options),
        dist.split_group(split_ranks=[list(range(place.size))], pg_options=options),
    ):
        backend = group._get_backend(torch.device("cpu"))
        assert backend.options._timeout == timedelta(seconds=20)
        x = torch.ones(3)
        dist.all_reduce(x, group=group)
        assert x[0] == place.size
    dist.monitored_barrier(timeout=timedelta(seconds=20))


def test_groups_and_options() -> None:
    run_fine(groups, 2, backend=None)


def errors(place: Place) -> None:
    import hfreduce

    for broken in (
        lambda: dist.all_gather([torch.ones(1)], torch.ones(1)),
        lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), op=dist.ReduceOp.AVG),
    ):
        try:
            broken()
        except hfreduce.Error as error:
            assert isinstance(error, dist.DistBackendError) and error.op
        else:
            raise AssertionError("no error")


def test_errors() -> None:
    run_fine(errors, 2)


def training(place: Place) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(3):
        loss = model(torch.full((2, 8), 1.0 + place.rank)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = [p.detach().clone() for p in model.parameters()]
    for weight in weights:
        parts = [torch.empty_like(weight) for _ in range(place.size)]
        dist.all_gather(parts, weight)
        assert all(torch.equal(part, weight) for part in parts)
    return losses


def test_training() -> None:
    for losses in run_fine(training, 2):
        assert losses[-1] < losses[0]
