# SPDX-License-Identifier: Apache-2.0
"""Every collective against a reference that each rank computes for itself."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Place, run_fine
from torch import Tensor

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FP8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
INTEGERS = [
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [*FLOATS, *FP8, *INTEGERS, *COMPLEX, torch.bool]

SHAPES = [(), (1,), (7,), (3, 5), (0,), (1000,), (70001,)]


def numbers(rank: int, shape: tuple[int, ...], dtype: torch.dtype, salt: int = 0) -> Tensor:
    """Small whole numbers that differ by rank and place: sums and products of them are exact."""
    count = torch.Size(shape).numel()
    base = (torch.arange(count) * 7 + rank * 3 + salt) % 4
    if dtype is torch.bool:
        return (base % 2 == 0).reshape(shape)
    return base.to(torch.float32).to(dtype).reshape(shape)


def same(got: Tensor, want: Tensor) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    # Comparison as bytes: also for types that torch cannot compare.
    left, right = got.contiguous().flatten(), want.contiguous().flatten()
    if not torch.equal(left.view(torch.uint8), right.view(torch.uint8)):
        torch.testing.assert_close(got.to(torch.float64), want.to(torch.float64), rtol=0, atol=0)
        raise AssertionError("equal values with different bits")


def same_average(got: Tensor, want: Tensor) -> None:
    """A division by the number of ranks may be a multiplication by its inverse: one bit of room."""
    if not got.dtype.is_complex:
        eps = torch.finfo(got.dtype).eps
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.double(), want.double(), rtol=eps, atol=0)
    else:
        same_average(torch.view_as_real(got), torch.view_as_real(want))


def check(op: Any, got: Tensor, want: Tensor) -> None:
    if op == dist.ReduceOp.AVG:
        same_average(got, want)
    else:
        same(got, want)


def reference(tensors: list[Tensor], op: dist.ReduceOp.RedOpType) -> Tensor:
    """What a reduction of `tensors` is, computed in a wide type."""
    dtype = tensors[0].dtype
    if dtype is torch.bool:
        wide = [tensor.to(torch.int64) for tensor in tensors]
    elif dtype.is_complex:
        wide = [tensor.to(torch.complex128) for tensor in tensors]
    elif dtype.is_floating_point:
        wide = [tensor.to(torch.float64) for tensor in tensors]
    else:
        wide = [tensor.to(torch.int64) for tensor in tensors]
    combine: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {
        dist.ReduceOp.SUM: torch.add,
        dist.ReduceOp.AVG: torch.add,
        dist.ReduceOp.PRODUCT: torch.mul,
        dist.ReduceOp.MIN: torch.minimum,
        dist.ReduceOp.MAX: torch.maximum,
        dist.ReduceOp.BAND: torch.bitwise_and,
        dist.ReduceOp.BOR: torch.bitwise_or,
        dist.ReduceOp.BXOR: torch.bitwise_xor,
    }
    total = wide[0].clone()
    for tensor in wide[1:]:
        total = combine[op](total, tensor)
    if op == dist.ReduceOp.AVG:
        total = total / len(tensors)
    return total.to(dtype) if dtype is not torch.bool else total != 0


def ops_for(dtype: torch.dtype) -> list[dist.ReduceOp.RedOpType]:
    op = dist.ReduceOp
    if dtype.is_complex:
        return [op.SUM, op.AVG]
    if dtype.is_floating_point:
        return [op.SUM, op.AVG, op.PRODUCT, op.MIN, op.MAX]
    return [op.SUM, op.PRODUCT, op.MIN, op.MAX, op.BAND, op.BOR, op.BXOR]


def all_reduce_everything(place: Place) -> int:
    checked = 0
    for dtype in DTYPES:
        for op in ops_for(dtype):
            for shape in SHAPES:
                mine = numbers(place.rank, shape, dtype)
                want = reference([numbers(rank, shape, dtype) for rank in range(place.size)], op)
                dist.all_reduce(mine, op=op)
                check(op, mine, want)
                checked += 1
    return checked


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_reduce(size: int) -> None:
    assert all(checked > 500 for checked in run_fine(all_reduce_everything, size))


def all_reduce_premul(place: Place) -> None:
    for factor in (0.5, torch.tensor([0.25])):
        for dtype in [*FLOATS, *COMPLEX]:
            x = numbers(place.rank, (33,), dtype)
            dist.all_reduce(x, op=dist._make_nccl_premul_sum(factor))
            inputs = [numbers(rank, (33,), dtype) for rank in range(place.size)]
            same(x, reference([(float(factor) * y).to(dtype) for y in inputs], dist.ReduceOp.SUM))


def test_all_reduce_premul_sum() -> None:
    run_fine(all_reduce_premul, 2)


def rooted(place: Place) -> None:
    for dtype in DTYPES:
        for root in range(place.size):
            for shape in SHAPES:
                inputs = [numbers(rank, shape, dtype, root) for rank in range(place.size)]
                x = inputs[place.rank].clone()
                dist.broadcast(x, src=root)
                same(x, inputs[root])

                x = inputs[place.rank].clone()
                dist.reduce(x, dst=root)
                want = reference(inputs, dist.ReduceOp.SUM)
                same(x, want if place.rank == root else inputs[place.rank])

                x = inputs[place.rank].clone()
                to = [torch.empty_like(x) for _ in inputs] if place.rank == root else None
                dist.gather(x, to, dst=root)
                for got, want in zip(to or [], inputs, strict=False):
                    same(got, want)

                x = torch.empty_like(inputs[0])
                dist.scatter(x, inputs if place.rank == root else None, src=root)
                same(x, inputs[place.rank])


@pytest.mark.parametrize("size", [2, 3])
def test_broadcast_reduce_gather_scatter(size: int) -> None:
    run_fine(rooted, size)


def gathers(place: Place) -> None:
    for dtype in DTYPES:
        for shape in SHAPES:
            inputs = [numbers(rank, shape, dtype) for rank in range(place.size)]
            outputs = [torch.empty_like(x) for x in inputs]
            dist.all_gather(outputs, inputs[place.rank])
            for got, want in zip(outputs, inputs, strict=True):
                same(got, want)
            if shape == ():
                continue
            flat = torch.empty((place.size * shape[0], *shape[1:]), dtype=dtype)
            dist.all_gather_into_tensor(flat, inputs[place.rank])
            same(flat, torch.cat([x.view(torch.uint8) for x in inputs]).view(dtype))


def scatters(place: Place) -> None:
    for dtype in DTYPES:
        for op in ops_for(dtype):
            for shape in [(1,), (7,), (3, 5), (0,), (1001,)]:
                parts = [
                    [numbers(rank, shape, dtype, part) for part in range(place.size)]
                    for rank in range(place.size)
                ]
                want = reference([parts[rank][place.rank] for rank in range(place.size)], op)
                got = torch.empty_like(want)
                dist.reduce_scatter(got, parts[place.rank], op=op)
                check(op, got, want)
                got = torch.empty_like(want)
                flat = torch.cat([x.view(torch.uint8) for x in parts[place.rank]]).view(dtype)
                dist.reduce_scatter_tensor(got, flat, op=op)
                check(op, got, want)


@pytest.mark.parametrize("size", [2, 3])
def test_all_gather(size: int) -> None:
    run_fine(gathers, size)


@pytest.mark.parametrize("size", [2, 3])
def test_reduce_scatter(size: int) -> None:
    run_fine(scatters, size)


def uneven(place: Place) -> None:
    sizes = [3 * rank + (rank != 1) for rank in range(place.size)]
    inputs = [numbers(rank, (sizes[rank],), torch.float32) for rank in range(place.size)]
    outputs = [torch.empty(n) for n in sizes]
    dist.all_gather(outputs, inputs[place.rank])
    for got, want in zip(outputs, inputs, strict=True):
        same(got, want)

    parts = [[numbers(r, (n,), torch.float32, n) for n in sizes] for r in range(place.size)]
    got = torch.empty(sizes[place.rank])
    dist.reduce_scatter(got, parts[place.rank])
    same(got, reference([parts[r][place.rank] for r in range(place.size)], dist.ReduceOp.SUM))


def test_uneven_lists() -> None:
    run_fine(uneven, 3)


def exchanges(place: Place) -> None:
    n, me = place.size, place.rank
    for dtype in DTYPES:
        # Rank r sends r+s+1 rows to rank s.
        rows = [[r + s + 1 for s in range(n)] for r in range(n)]
        parts = [[numbers(r, (rows[r][s], 3), dtype, s) for s in range(n)] for r in range(n)]
        want = [parts[r][me] for r in range(n)]

        got = [torch.empty_like(x) for x in want]
        dist.all_to_all(got, parts[me])
        for left, right in zip(got, want, strict=True):
            same(left, right)

        flat = torch.cat([x.view(torch.uint8) for x in parts[me]]).view(dtype)
        whole = torch.cat([x.view(torch.uint8) for x in want]).view(dtype)
        out = torch.empty_like(whole)
        dist.all_to_all_single(
            out,
            flat,
            output_split_sizes=[rows[r][me] for r in range(n)],
            input_split_sizes=rows[me],
        )
        same(out, whole)

        even = numbers(me, (2 * n, 2), dtype)
        out = torch.empty_like(even)
        dist.all_to_all_single(out, even)
        pieces = [numbers(r, (2 * n, 2), dtype)[2 * me : 2 * me + 2] for r in range(n)]
        same(out, torch.cat([x.contiguous().view(torch.uint8) for x in pieces]).view(dtype))


@pytest.mark.parametrize("size", [2, 3])
def test_all_to_all(size: int) -> None:
    run_fine(exchanges, size)


def coalesced(place: Place) -> None:
    shapes = [(3,), (1000,), (0,), (2, 2)]
    inputs = [
        [numbers(r, s, torch.float32, i) for i, s in enumerate(shapes)] for r in range(place.size)
    ]
    sums = [reference([x[i] for x in inputs], dist.ReduceOp.SUM) for i in range(len(shapes))]

    mine = [x.clone() for x in inputs[place.rank]]
    with dist._coalescing_manager():
        for x in mine:
            dist.all_reduce(x)
    for got, want in zip(mine, sums, strict=True):
        same(got, want)

    mine = [x.clone() for x in inputs[place.rank]]
    with dist._coalescing_manager(async_ops=True) as manager:
        for x in mine:
            dist.all_reduce(x)
    manager.wait()
    for got, want in zip(mine, sums, strict=True):
        same(got, want)

    # The way of older torch, with each call made on the backend.
    mine = [x.clone() for x in inputs[place.rank]]
    group = dist.group.WORLD
    group._start_coalescing(torch.device("cpu"))
    for x in mine:
        group.allreduce([x])
    group._end_coalescing(torch.device("cpu")).wait()
    for got, want in zip(mine, sums, strict=True):
        same(got, want)
    group._start_coalescing(torch.device("cpu"))
    assert group._end_coalescing(torch.device("cpu")) is None

    flat = [torch.empty(place.size * x.shape[0], *x.shape[1:]) for x in inputs[0]]
    with dist._coalescing_manager():
        for out, x in zip(flat, inputs[place.rank], strict=True):
            dist.all_gather_into_tensor(out, x)
    for i, out in enumerate(flat):
        same(out, torch.cat([x[i] for x in inputs]))

    back = [torch.empty_like(x) for x in inputs[0]]
    with dist._coalescing_manager():
        for out, x in zip(back, flat, strict=True):
            dist.reduce_scatter_tensor(out, x)
    for i, out in enumerate(back):
        same(out, inputs[place.rank][i] * place.size)

    lists = [[torch.empty_like(x) for x in inputs[0]] for _ in range(place.size)]
    dist.all_gather_coalesced(lists, inputs[place.rank])
    for got_list, want_list in zip(lists, inputs, strict=True):
        for got, want in zip(got_list, want_list, strict=True):
            same(got, want)


def test_coalesced() -> None:
    run_fine(coalesced, 3)


def point_to_point(place: Place) -> None:
    n, me = place.size, place.rank
    right, left = (me + 1) % n, (me - 1) % n
    for dtype in DTYPES:
        x, y = numbers(me, (101,), dtype), torch.empty(101, dtype=dtype)
        works = [dist.isend(x, right), dist.irecv(y, left)]
        for work in works:
            work.wait()
        same(y, numbers(left, (101,), dtype))
    # Tags cross: what was sent last is received first.
    a, b = torch.full((3,), 1.0 + me), torch.full((3,), 10.0 + me)
    sends = [dist.isend(a, right, tag=1), dist.isend(b, right, tag=2)]
    first, second = torch.empty(3), torch.empty(3)
    dist.recv(second, left, tag=2)
    dist.recv(first, left, tag=1)
    same(first, torch.full((3,), 1.0 + left))
    same(second, torch.full((3,), 10.0 + left))
    for work in sends:
        work.wait()
    ops = [
        dist.P2POp(dist.isend, a, right),
        dist.P2POp(dist.irecv, first, left),
        dist.P2POp(dist.isend, b, left),
        dist.P2POp(dist.irecv, second, right),
    ]
    for request in dist.batch_isend_irecv(ops):
        request.wait()
    same(first, torch.full((3,), 1.0 + left))
    same(second, torch.full((3,), 10.0 + right))
    # From anyone.
    if me == 0:
        seen = set()
        for _ in range(n - 1):
            x = torch.empty(1)
            source = dist.recv(x)
            assert x.item() == source
            seen.add(source)
        assert seen == set(range(1, n))
    else:
        dist.send(torch.tensor([float(me)]), 0)


def test_point_to_point() -> None:
    run_fine(point_to_point, 3)


def dropped_send(place: Place) -> None:
    """A send whose work and tensor are dropped at once still arrives."""
    if place.rank == 0:
        for i in range(20):
            dist.isend(torch.full((10_000,), float(i)), 1)
        place.leave_mark("sent")
    else:
        place.await_mark("sent")
        for i in range(20):
            x = torch.empty(10_000)
            dist.recv(x, 0)
            same(x, torch.full((10_000,), float(i)))


def test_dropped_send() -> None:
    run_fine(dropped_send, 2)


def strange_layouts(place: Place) -> None:
    n, me = place.size, place.rank
    base = [torch.arange(24.0).reshape(4, 6) + 100 * r for r in range(n)]
    total = sum(base[1:], base[0])

    grid = base[me].clone()
    dist.all_reduce(grid.t())  # transposed
    same(grid, total)
    grid = base[me].clone()
    dist.all_reduce(grid[:, ::2])  # with gaps; what lies in the gaps stays
    same(grid[:, ::2], total[:, ::2])
    same(grid[:, 1::2], base[me][:, 1::2])
    grid = base[me].clone()
    work = dist.all_reduce(grid[:, 1:4], async_op=True)
    work.get_future().wait()  # the copy back has happened when the future completes
    same(grid[:, 1:4], total[:, 1:4])
    grid = base[me].clone().to(memory_format=torch.contiguous_format)
    dist.broadcast(grid.t()[::2], src=1)
    same(grid.t()[::2], base[1].t()[::2])

    image = torch.arange(48.0).reshape(2, 2, 3, 4) + me
    image = image.contiguous(memory_format=torch.channels_last)
    dist.all_reduce(image)
    want = n * torch.arange(48.0).reshape(2, 2, 3, 4) + sum(range(n))
    assert torch.equal(image, want)

    conjugate = torch.complex(torch.ones(3), torch.full((3,), 1.0 + me)).conj()
    outputs = [torch.empty(3, dtype=torch.complex64) for _ in range(n)]
    # Past torch.distributed, which views complex tensors as real ones and refuses this one.
    dist.group.WORLD.allgather([outputs], [conjugate]).wait()
    for r, out in enumerate(outputs):
        same(out, torch.complex(torch.ones(3), torch.full((3,), -1.0 - r)))

    # One buffer for every rank's part: the last rank's stays.
    buffer = torch.empty(5)
    dist.all_gather([buffer] * n, torch.full((5,), float(me)))
    same(buffer, torch.full((5,), float(n - 1)))
    # In place, as FSDP does.
    flat = torch.zeros(n * 5)
    flat[5 * me : 5 * me + 5] = me
    dist.all_gather_into_tensor(flat, flat[5 * me : 5 * me + 5])
    same(flat, torch.arange(float(n)).repeat_interleave(5))
    dist.reduce_scatter_tensor(flat[5 * me : 5 * me + 5], flat)
    same(flat[5 * me : 5 * me + 5], torch.full((5,), float(n * me)))
    # Input and output of an exchange are one tensor.
    x = torch.full((n,), float(me))
    dist.all_to_all_single(x, x)
    same(x, torch.arange(float(n)))
    # The input overlaps another rank's place.
    flat = torch.arange(5.0 * n) + me
    dist.all_gather_into_tensor(flat, flat[:5])
    same(flat, torch.cat([torch.arange(5.0) + r for r in range(n)]))
    # A leaf that requires grad.
    leaf = torch.nn.Parameter(torch.ones(4, 4))
    with torch.no_grad():
        dist.all_reduce(leaf.t())
    same(leaf.detach(), torch.full((4, 4), float(n)))


def test_strange_layouts() -> None:
    run_fine(strange_layouts, 3)


def sparse(place: Place) -> None:
    n, me = place.size, place.rank

    def tensor(rank: int, dtype: torch.dtype) -> Tensor:
        # Rank r has r entries twice over: rank 0 none, and all have duplicates.
        where = torch.tensor([[i % 5 for i in range(2 * rank)], [1] * (2 * rank)], dtype=torch.long)
        values = torch.arange(2.0 * rank * 3).reshape(2 * rank, 3).to(dtype)
        return torch.sparse_coo_tensor(where, values, (5, 2, 3))

    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        want = sum(tensor(r, dtype).to_dense().to(torch.float64) for r in range(n))
        x = tensor(me, dtype)
        dist.all_reduce(x)
        assert x.is_sparse and x.dtype == dtype
        same(x.to_dense().to(torch.float64), want)
    x = tensor(me, torch.float32)
    work = dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True)
    other = torch.ones(3)
    dist.all_reduce(other)  # started later, in flight at the same time
    work.wait()
    same(other, torch.full((3,), float(n)))
    want = sum(tensor(r, torch.float32).to_dense() for r in range(n)) / n
    torch.testing.assert_close(x.to_dense(), want)


def test_sparse_all_reduce() -> None:
    run_fine(sparse, 3)


def many_in_flight(place: Place) -> None:
    tensors = [torch.full((i % 97 + 1,), float(i)) for i in range(300)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    for work in reversed(works):
        work.wait()
        assert work.is_completed()
    for i, x in enumerate(tensors):
        same(x, torch.full((i % 97 + 1,), float(i * place.size)))


def test_many_in_flight() -> None:
    run_fine(many_in_flight, 3)


def work_object(place: Place) -> dict[str, Any]:
    x = torch.ones(5)
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), torch.full((5,), 2.0 * place.size))
    assert work.wait() is True
    assert work.is_completed() and work.exception() is None
    assert work.result()[0] is x or torch.equal(work.result()[0], x)
    first = work._get_sequence_number()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert work._get_sequence_number() == first + 1
    assert work.get_future_result().wait() == 0
    with pytest.raises(ValueError, match="_enable_collectives_timing"):
        work._get_duration()
    dist.group.WORLD._enable_collectives_timing()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert 0 < work._get_duration() < 10_000
    work.block_current_stream()
    dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait(timedelta(seconds=10))
    return {"sequence": dist.group.WORLD._get_sequence_number_for_group()}


def test_work() -> None:
    values = run_fine(work_object, 2)
    assert values[0] == values[1]


def callback_with_collective(place: Place) -> None:
    """A callback starts another collective and waits for it, while this thread does the same."""
    other = dist.new_group()
    result: list[float] = []
    ready = threading.Event()

    def then(_: Any) -> None:
        y = torch.ones(10)
        dist.all_reduce(y, group=other, async_op=True).get_future().then(
            lambda done: (result.append(done.value()[0].sum().item()), ready.set())
        )

    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.get_future().then(then)
    for _ in range(20):
        dist.all_reduce(torch.ones(1000))
    assert ready.wait(20)
    assert result == [10.0 * place.size]


def test_callback_that_communicates() -> None:
    run_fine(callback_with_collective, 2)


def hooks(place: Place) -> list[str]:
    group = dist.group.WORLD
    seen: list[str] = []
    group._register_on_completion_hook(lambda info: seen.append(str(info.op_type)))
    dist.all_reduce(torch.ones(3))
    dist.all_reduce(torch.ones(3), async_op=True).wait()
    dist.broadcast(torch.ones(3), src=0, async_op=True)  # nobody waits
    group._wait_for_pending_works()
    return seen


def test_completion_hook() -> None:
    for seen in run_fine(hooks, 2):
        assert len(seen) == 3


def recorded() -> list[tuple[str, str]]:
    """Names and states of the operations in this rank's dump of the flight recorder."""
    dump = torch._C._distributed_c10d._dump_fr_trace_json(backend="hfreduce")
    return [(e["profiling_name"], e["state"]) for e in json.loads(dump).get("entries", [])]


def flight_recorder(place: Place) -> list[tuple[str, str]]:
    x = torch.ones(3)
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    kept = dist.broadcast(x, src=0, async_op=True)  # nobody waits
    if place.rank == 0:
        dist.isend(x, 1)  # may be done before the call returns
    else:
        dist.recv(torch.empty(3), 0)
    place.meet("before")
    if place.rank == 0:
        hung = dist.all_reduce(x, async_op=True)
    deadline = time.monotonic() + 20
    while [state for _, state in recorded()[:4]] != ["completed"] * 4:
        assert time.monotonic() < deadline, recorded()
        time.sleep(0.01)
    states = recorded()
    place.meet("after")
    if place.rank == 1:
        hung = dist.all_reduce(x, async_op=True)
    hung.wait()
    kept.wait()
    return states


def test_flight_recorder() -> None:
    if not hasattr(dist.ProcessGroup, "supports_completion_hooks"):
        pytest.skip("this torch records the operations of its own backends only")
    first, _ = run_fine(flight_recorder, 2)
    assert first[4:] == [("hfreduce:all_reduce", "scheduled")]


def profiled(place: Place) -> list[str]:
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(3))
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        out = [torch.empty(3) for _ in range(place.size)]
        dist.all_gather(out, torch.ones(3))
        dist.barrier()
    return [event.name for event in profile.events() if event.name.startswith("hfreduce:")]


def test_profiler_ranges() -> None:
    for names in run_fine(profiled, 2):
        assert sorted(names) == [
            "hfreduce:all_gather",
            "hfreduce:all_reduce",
            "hfreduce:all_reduce",
            "hfreduce:barrier",
        ]


def memory(place: Place) -> None:
    import hfreduce

    x = hfreduce.empty(3, 5, dtype=torch.bfloat16)
    assert x.shape == (3, 5) and x.dtype == torch.bfloat16 and x.is_contiguous()
    x.fill_(1)
    dist.all_reduce(x)
    same(x, torch.full((3, 5), float(place.size), dtype=torch.bfloat16))
    assert hfreduce.empty((4,)).shape == (4,)
    assert hfreduce.empty(0).numel() == 0
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    y = backend.allocate_tensor(7, dtype=torch.int16, device=torch.device("cpu"))
    assert y.shape == (7,) and y.dtype == torch.int16
    dist.destroy_process_group()
    # The memory outlives the group.
    same(x, torch.full((3, 5), float(place.size), dtype=torch.bfloat16))
    x.zero_()
    y.zero_()


def test_shared_memory_tensors() -> None:
    run_fine(memory, 2)


def monitored(place: Place) -> str | None:
    import hfreduce

    dist.monitored_barrier(timeout=timedelta(seconds=20))
    error = None
    if place.rank != 1:
        with pytest.raises(hfreduce.TimeoutError) as caught:
            dist.monitored_barrier(timeout=timedelta(seconds=1))
        error = str(caught.value)
        if place.rank == 0:
            assert caught.value.ranks == [1]
    place.meet("after")
    # The group has not suffered.
    x = torch.ones(3)
    dist.all_reduce(x)
    same(x, torch.full((3,), float(place.size)))
    if place.rank == 0:
        with pytest.raises(hfreduce.TimeoutError) as caught:
            dist.monitored_barrier(timeout=timedelta(seconds=0.5), wait_all_ranks=True)
        assert caught.value.ranks == [1, 2]
    place.meet("end")
    return error


def test_monitored_barrier() -> None:
    errors = run_fine(monitored, 3)
    assert "Rank 1 failed to pass monitoredBarrier" in errors[0]
    assert "Rank 2 successfully reached monitoredBarrier" in errors[2]


def rank_places(place: Place) -> list[Any]:
    import hfreduce

    return list(hfreduce.ranks())


def test_ranks() -> None:
    for infos in run_fine(rank_places, 2):
        assert [info["rank"] for info in infos] == [0, 1]
        assert all(info["pid"] > 0 and info["host"] for info in infos)


def from_two_threads(place: Place) -> None:
    """Two groups, each used by a thread of its own."""
    groups = [dist.new_group(), dist.new_group()]
    failures: list[BaseException] = []

    def work(group: Any, scale: float) -> None:
        try:
            for i in range(200):
                x = torch.full((50,), scale * i)
                dist.all_reduce(x, group=group)
                same(x, torch.full((50,), scale * i * place.size))
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=(group, scale))
        for group, scale in zip(groups, (1.0, 3.0), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_threads() -> None:
    run_fine(from_two_threads, 2)


def again_and_again(place: Place) -> None:
    from harness import init_group

    for i in range(10):
        # The same store under the same name each time: nothing of an earlier meeting may be met.
        store = dist.FileStore(str(place.folder / "store"), place.size)
        dist.init_process_group("hfreduce", store=store, rank=place.rank, world_size=place.size)
        x = torch.full((3,), float(i))
        dist.all_reduce(x)
        same(x, torch.full((3,), float(i * place.size)))
        dist.destroy_process_group()
    init_group(place)


def test_init_and_destroy_again() -> None:
    run_fine(again_and_again, 2, backend=None)
