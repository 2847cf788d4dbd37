# SPDX-License-Identifier: Apache-2.0
"""What a person meets when something goes wrong: types, attributes, and what still works after."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Place, Rank, init_group, run, run_fine
from torch import Tensor

FIELDS = ("rank", "global_rank", "host", "pid", "op", "seq", "group")


def facts(error: BaseException) -> dict[str, Any]:
    return {"type": type(error).__name__, **{name: getattr(error, name) for name in FIELDS}}


# --- arguments ------------------------------------------------------------------------------------


def to(options: Any, root: int) -> Any:
    options.rootRank = root
    return options


def bad_calls(place: Place) -> list[tuple[str, Callable[[], Any], str]]:
    n, me = place.size, place.rank
    x = torch.ones(4)
    # The backend itself: torch's dispatcher refuses some of these calls before they come to it.
    pg: Any = dist.group.WORLD._get_backend(torch.device("cpu"))
    lists = [torch.ones(4) for _ in range(n)]
    strange = torch.ones(2).expand(3, 2)
    sparse = torch.eye(3).to_sparse()
    return [
        ("allreduce", lambda: dist.all_reduce(strange), "share memory.*clone"),
        ("allreduce", lambda: pg.allreduce([x, x]), "has 2 tensors; pass exactly one"),
        ("allreduce", lambda: pg.allreduce([]), "has 0 tensors"),
        ("allreduce", lambda: pg.allreduce([torch.eye(3).to_sparse_csr()]), "to_dense"),
        ("broadcast", lambda: pg.broadcast([sparse]), "to_dense"),
        ("broadcast", lambda: pg.broadcast(x, n), f"rank {n}.*0 to {n - 1}"),
        ("broadcast", lambda: pg.broadcast(x, -1), "rank -1"),
        ("reduce", lambda: pg.reduce(x, n), f"rank {n}"),
        ("allgather", lambda: dist.all_gather(lists[1:], x), f"has {n - 1} entries.*{n} ranks"),
        (
            "allgather",
            lambda: dist.all_gather([torch.ones(5) for _ in range(n)], x),
            "has 5 elements.*contributes 4",
        ),
        (
            "allgather",
            lambda: pg.allgather([[y.double() for y in lists]], [x]),
            "has type Double.*Float",
        ),
        ("allgather", lambda: pg.all_gather_single(torch.ones(4 * n + 1), x), f"make it 4 .*{n}"),
        ("reduce_scatter", lambda: dist.reduce_scatter(x, lists[1:]), "entries"),
        ("reduce_scatter", lambda: dist.reduce_scatter(torch.ones(3), lists), "has 4 elements"),
        (
            "reduce_scatter",
            lambda: pg.reduce_scatter_single(x, torch.ones(4 * n + 1)),
            f"make it 4 .*{n}",
        ),
        (
            "gather",
            lambda: pg.gather([[*lists, x]], [x], to(dist.GatherOptions(), me)),
            f"has {n + 1} entries",
        ),
        (
            "gather",
            lambda: pg.gather([lists], [x], to(dist.GatherOptions(), (me + 1) % n)),
            "only the destination",
        ),
        ("scatter", lambda: pg.scatter([x], [lists[1:]], to(dist.ScatterOptions(), me)), "entries"),
        (
            "scatter",
            lambda: pg.scatter([x], [lists], to(dist.ScatterOptions(), (me + 1) % n)),
            "only the source",
        ),
        (
            "alltoall",
            lambda: dist.all_to_all_single(torch.ones(n + 1), torch.ones(n + 1)),
            "cannot share equally",
        ),
        (
            "alltoall",
            lambda: dist.all_to_all_single(
                torch.ones(n), torch.ones(n), output_split_sizes=[1] * n, input_split_sizes=[2] * n
            ),
            f"add up to {2 * n}",
        ),
        (
            "alltoall",
            lambda: pg.alltoall_base(x, x, [5, -1] + [0] * (n - 2), []),
            "split_sizes has -1",
        ),
        ("send", lambda: pg.send([x], n, 0), f"rank {n}"),
        ("send", lambda: dist.send(x, (me + 1) % n, tag=-1), "tag is -1"),
        ("recv", lambda: dist.recv(strange, (me + 1) % n), "clone"),
    ]


def arguments(place: Place) -> None:
    import hfreduce

    for op, call, words in bad_calls(place):
        with pytest.raises(hfreduce.InvalidArgumentError, match=f"(?s){words}") as caught:
            call()
        assert isinstance(caught.value, ValueError), words
        assert isinstance(caught.value, dist.DistBackendError), words
        assert caught.value.op == op, (words, caught.value.op)
    x = torch.ones(4)
    dist.all_reduce(x)  # the group is none the worse
    assert x[0] == place.size


def test_bad_arguments() -> None:
    run_fine(arguments, 2)


def unsupported(place: Place) -> None:
    import hfreduce

    op = dist.ReduceOp
    cases = [
        (torch.int32, op.AVG, "use sum and divide"),
        (torch.int64, dist._make_nccl_premul_sum(2.0), ""),
        (torch.float32, op.BAND, ""),
        (torch.bfloat16, op.BXOR, ""),
    ]
    for dtype, reduction, words in cases:
        with pytest.raises(hfreduce.UnsupportedError, match=words) as caught:
            dist.all_reduce(torch.ones(3, dtype=dtype), op=reduction)
        assert isinstance(caught.value, TypeError)
    with pytest.raises(hfreduce.UnsupportedError, match="SUM and AVG"):
        dist.all_reduce(torch.eye(3).to_sparse(), op=op.MAX)
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with pytest.raises(hfreduce.UnsupportedError, match="QInt8"):
        dist.group.WORLD._get_backend(torch.device("cpu")).broadcast([quantized])
    # Types that nobody can add still travel.
    if hasattr(torch, "float8_e8m0fnu"):
        x = torch.full((5,), place.rank + 1, dtype=torch.uint8).view(torch.float8_e8m0fnu)
        dist.broadcast(x, 1)
        assert x.view(torch.uint8).tolist() == [2] * 5
        with pytest.raises(hfreduce.UnsupportedError, match="e8m0fnu"):
            dist.all_reduce(x)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0] == place.size


def test_unsupported() -> None:
    run_fine(unsupported, 2)


def test_errors_travel_between_processes() -> None:
    from hfreduce.errors import PeerError, from_status

    error = from_status("peer lost", "gone", {"rank": "3", "host": "a7", "ranks": "1, 2"})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is PeerError
    assert (again.rank, again.host, again.ranks, again.seq) == (3, "a7", [1, 2], None)
    assert str(again) == str(error)


# --- the ways in which a failure is met -----------------------------------------------------------


def by_call(x: Tensor) -> None:
    dist.all_reduce(x)


def by_wait(x: Tensor) -> None:
    dist.all_reduce(x, async_op=True).wait()


def by_future(x: Tensor) -> None:
    dist.all_reduce(x, async_op=True).get_future().wait()


def by_future_value(x: Tensor) -> None:
    future = dist.all_reduce(x, async_op=True).get_future()
    for _ in range(2):  # what is caught once can be met again
        with contextlib.suppress(Exception):
            future.wait()
    future.value()


def by_functional(x: Tensor) -> None:
    from torch.distributed import _functional_collectives as functional

    functional.all_reduce(x, "sum", dist.group.WORLD).sum().item()


def by_compiled(x: Tensor) -> None:
    compiled_step()(x).sum().item()


@functools.cache
def compiled_step() -> Callable[[Tensor], Tensor]:
    from torch.distributed import _functional_collectives as functional

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(y: Tensor) -> Tensor:
        return functional.all_reduce(y, "sum", dist.group.WORLD) + 1

    return step


WAYS = {f.__name__: f for f in (by_call, by_wait, by_future, by_future_value, by_functional)}
WAYS["by_compiled"] = by_compiled


def die_while_others_call(place: Place) -> dict[str, Any] | None:
    import hfreduce

    way = place.arguments["way"]
    dist.all_reduce(torch.ones(3))
    if way == "by_backward":
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        model(torch.ones(2, 4)).sum().backward()
    else:
        WAYS[way](torch.ones(1000))  # compiled, for example
    if place.rank == 1:
        place.leave_mark(f"pid.{os.getpid()}")
        place.await_mark("called.0")
        time.sleep(0.3)  # the others are inside by now
        os.kill(os.getpid(), signal.SIGKILL)
    caller = threading.Timer(0.1, place.leave_mark, [f"called.{place.rank}"])
    caller.start()
    start = time.monotonic()
    with pytest.raises(hfreduce.PeerError) as caught:
        if way == "by_backward":
            model(torch.ones(2, 4)).sum().backward()
        else:
            WAYS[way](torch.ones(1000))
    assert time.monotonic() - start < 15
    found = facts(caught.value)
    # All that comes later fails at once and for the same reason.
    with pytest.raises(hfreduce.PeerError) as caught:
        dist.all_reduce(torch.ones(3))
    assert caught.value.rank == found["rank"] and caught.value.pid == found["pid"]
    # Another process group over the same ranks has a dead member too, but its own state; leaving is
    # possible whatever has happened.
    dist.destroy_process_group()
    [mark] = place.folder.glob("pid.*")
    assert found["pid"] == int(mark.suffix[1:])
    return found


@pytest.mark.parametrize("way", [*WAYS, "by_backward"])
def test_dead_rank(way: str) -> None:
    ranks = run(die_while_others_call, 3, arguments={"way": way})
    assert ranks[1].exit_code == -signal.SIGKILL
    survivors = [ranks[0], ranks[2]]
    assert all(rank.fine for rank in survivors), [rank.error for rank in survivors]
    for rank in survivors:
        found = rank.value
        assert found["type"] == "PeerError"
        assert found["rank"] == found["global_rank"] == 1
        assert found["host"] and found["op"] == "allreduce" and found["seq"] >= 2


def dead_in_subgroup(place: Place) -> dict[str, Any] | None:
    """Ranks within a group and in the default group differ."""
    import hfreduce

    group = dist.new_group([1, 2])
    if place.rank == 0:
        place.await_mark("seen")
        return None
    dist.all_reduce(torch.ones(3), group=group)
    if place.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(hfreduce.PeerError) as caught:
        dist.all_reduce(torch.ones(3), group=group)
    place.leave_mark("seen")
    return facts(caught.value)


def test_dead_rank_in_subgroup() -> None:
    ranks = run(dead_in_subgroup, 3)
    assert ranks[1].fine, ranks[1].error
    assert (ranks[1].value["rank"], ranks[1].value["global_rank"]) == (1, 2)


# --- time -----------------------------------------------------------------------------------------


def impatient(place: Place) -> None:
    import hfreduce

    x = torch.ones(5)
    if place.rank == 0:
        work = dist.all_reduce(x, async_op=True)
        start = time.monotonic()
        with pytest.raises(hfreduce.TimeoutError):
            work.wait(timedelta(seconds=0.5))
        assert 0.4 < time.monotonic() - start < 10
        assert not work.is_completed()
        place.leave_mark("gave up waiting")
        work.wait()  # the operation itself went on
    else:
        place.await_mark("gave up waiting")
        dist.all_reduce(x)
    assert x[0] == place.size
    dist.all_reduce(x)


def test_wait_that_runs_out_leaves_the_operation_running() -> None:
    run_fine(impatient, 2)


def late(place: Place) -> dict[str, Any]:
    import hfreduce

    dist.all_reduce(torch.ones(3))
    if place.rank == 1:
        place.await_mark("timed out")
    errors = (hfreduce.TimeoutError, hfreduce.AbortedError)
    start = time.monotonic()
    with pytest.raises(errors if place.rank else hfreduce.TimeoutError) as caught:
        dist.all_reduce(torch.ones(3))
    elapsed = time.monotonic() - start
    place.leave_mark("timed out")
    again: BaseException | None = None
    try:
        dist.barrier()
    except errors as error:
        again = error
    assert type(again) is type(caught.value)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert "SUCCESS" not in str(backend.get_error())
    return {**facts(caught.value), "elapsed": elapsed, "text": str(caught.value)}


def test_operation_that_times_out() -> None:
    first, second = run_fine(late, 2, init={"timeout": timedelta(seconds=2)})
    assert 1.5 < first["elapsed"] < 3  # to within 1 s
    assert first["op"] == "allreduce" and first["seq"] == 2 and first["rank"] == 1
    assert second["elapsed"] < 1  # the one that came late is told


def missing_at_start(place: Place) -> str:
    import hfreduce

    if place.rank == 2:
        return ""
    with pytest.raises(hfreduce.TimeoutError) as caught:
        init_group(place, timeout=timedelta(seconds=2))
    assert caught.value.ranks in ([], [2])
    return str(caught.value)


def test_rank_that_never_arrives() -> None:
    texts = run_fine(missing_at_start, 3, backend=None)
    assert "2" in texts[0]


# --- mismatch -------------------------------------------------------------------------------------


def differ(place: Place) -> str:
    import hfreduce

    kind = place.arguments["kind"]
    first = place.rank == 0
    x = torch.ones(8)
    dist.all_reduce(x)

    def call() -> None:
        if kind == "operation":
            dist.all_reduce(x) if first else dist.broadcast(x, 0)
        elif kind == "size":
            dist.all_reduce(torch.ones(8 if first else 9))
        elif kind == "type":
            dist.all_reduce(torch.ones(8, dtype=torch.float32 if first else torch.int32))
        elif kind == "reduction":
            dist.all_reduce(x, op=dist.ReduceOp.SUM if first else dist.ReduceOp.MAX)
        elif kind == "root":
            dist.broadcast(x, 0 if first else 1)

    with pytest.raises(hfreduce.MismatchError) as caught:
        call()
        dist.barrier()  # at the latest the next call says so
    return str(caught.value)


@pytest.mark.parametrize("kind", ["operation", "size", "type", "reduction", "root"])
def test_mismatch(kind: str) -> None:
    for text in run_fine(differ, 2, arguments={"kind": kind}):
        assert "rank 0" in text and "rank 1" in text, text


# --- leaving --------------------------------------------------------------------------------------


def abort_and_leave(place: Place) -> None:
    import hfreduce

    x = torch.ones(3)
    dist.all_reduce(x)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    called: list[str] = []
    if hasattr(backend, "register_abort_hook"):
        backend.register_abort_hook(7, lambda: called.append("hook"))
    if place.rank == 0:
        work = dist.all_reduce(x, async_op=True)
        backend.abort()
        with pytest.raises(hfreduce.AbortedError):
            work.wait()
        assert called or not hasattr(backend, "register_abort_hook")
        place.leave_mark("aborted")
    else:
        place.await_mark("aborted")
    with pytest.raises(hfreduce.AbortedError):
        dist.all_reduce(x)
    backend.abort()
    backend.shutdown()
    backend.shutdown()


def test_abort_is_heard_by_all() -> None:
    run_fine(abort_and_leave, 2)


def shut_twice(place: Place) -> None:
    import hfreduce

    dist.all_reduce(torch.ones(3))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.shutdown()
    backend.shutdown()
    with pytest.raises(hfreduce.Error):
        dist.all_reduce(torch.ones(3))


def test_shutdown_twice() -> None:
    run_fine(shut_twice, 2)


def drop_with_pending_callback(place: Place) -> None:
    """The last reference to a group goes while a Python callback is about to run."""
    for _ in range(50):
        group = dist.new_group()
        ran = threading.Event()
        x = torch.ones(2000)
        future = dist.all_reduce(x, group=group, async_op=True).get_future()
        future.then(lambda _, ran=ran: ran.set())
        del future
        dist.destroy_process_group(group)
        del group
        assert ran.wait(20)


def test_dropping_a_group_with_a_pending_callback() -> None:
    run_fine(drop_with_pending_callback, 2)


def interrupted(place: Place) -> None:
    """Ctrl-C in a blocked wait."""
    x = torch.ones(3)
    dist.all_reduce(x)
    if place.rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            dist.all_reduce(x)
        assert time.monotonic() - start < 10
        place.leave_mark("interrupted")
    else:
        place.await_mark("interrupted")
        dist.all_reduce(x)  # the operation was not lost: it finishes when this rank comes
    dist.barrier()


def test_keyboard_interrupt() -> None:
    run_fine(interrupted, 2)


def interrupted_at_start(place: Place) -> None:
    if place.rank == 1:
        place.await_mark("interrupted")
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        init_group(place)
    place.leave_mark("interrupted")


def test_keyboard_interrupt_while_ranks_gather() -> None:
    run_fine(interrupted_at_start, 2, backend=None)


def forked(place: Place) -> None:
    import hfreduce

    x = torch.ones(3)
    dist.all_reduce(x)
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            try:
                dist.all_reduce(x)
            except hfreduce.Error as error:
                code = 0 if "fork" in str(error) else 2
            dist.destroy_process_group()  # must not disturb the parent
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    dist.all_reduce(x)
    assert x[0] == place.size**2


def test_fork() -> None:
    run_fine(forked, 2)


PROGRAM = """
    import sys, threading, time
    import torch, torch.distributed as dist

    dist.init_process_group(
        "hfreduce", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2
    )
    x = torch.ones(100_000)
    dist.all_reduce(x)
    kept = []
    {body}
"""


def leave(tmp_path: Path, body: str) -> list[tuple[int, float, str]]:
    """Runs a program of two ranks that ends as `body` has it: exit codes, seconds, stderr."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM).replace("{body}", body))
    start = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, str(program), str(tmp_path / "rendezvous"), str(rank)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outcomes = []
    try:
        for process in processes:
            _, stderr = process.communicate(timeout=60)
            outcomes.append((process.returncode, time.monotonic() - start, stderr))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return outcomes


@pytest.mark.parametrize(
    "body",
    [
        "pass",  # no destroy_process_group
        "kept.append(dist.all_reduce(x, async_op=True))",  # pending on both
        "kept.append(dist.all_reduce(x, async_op=True).get_future().then(lambda f: print(f)))",
        "dist.isend(x, 1) if dist.get_rank() == 0 else dist.recv(x, 0)",
        "threading.Thread(target=dist.all_reduce, args=(x,), daemon=True).start()",
    ],
)
def test_exit_without_destroy(tmp_path: Path, body: str) -> None:
    for code, _, stderr in leave(tmp_path, body):
        assert code == 0, stderr


def test_exit_with_work_that_cannot_finish(tmp_path: Path) -> None:
    body = "kept.append(dist.all_reduce(x, async_op=True)) if dist.get_rank() == 0 else None"
    for code, seconds, stderr in leave(tmp_path, body):
        assert code == 0, stderr
        assert seconds < 45


def survivors(ranks: list[Rank]) -> list[Rank]:
    return [rank for rank in ranks if rank.exit_code != -signal.SIGKILL]


def shrink(place: Place) -> float | None:
    import hfreduce

    dist.all_reduce(torch.ones(3))
    if place.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(hfreduce.PeerError):
        dist.all_reduce(torch.ones(3))
    dist.shrink_group([1])
    x = torch.full((3,), 1.0 + place.rank)
    dist.all_reduce(x)
    assert dist.get_world_size() == place.size - 1
    return x[0].item()


def test_shrink_after_a_death() -> None:
    ranks = survivors(run(shrink, 3))
    assert [rank.value for rank in ranks] == [4.0, 4.0], [rank.error for rank in ranks]
