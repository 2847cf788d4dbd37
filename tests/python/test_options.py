# SPDX-License-Identifier: Apache-2.0
"""hfreduce.Options, the ways in which they reach a group, and registration with torch."""

from __future__ import annotations

import copy
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Place, init_group, run_fine
from torch.distributed.device_mesh import init_device_mesh

NINE = timedelta(seconds=9)
CPU = torch.device("cpu")


def timeout_of(group: Any) -> timedelta:
    return group._get_backend(CPU).options._timeout  # type: ignore[no-any-return]


def timeouts(place: Place) -> None:
    import hfreduce

    options = hfreduce.Options(timeout=NINE)
    init_group(place, timeout=timedelta(minutes=3), pg_options=options)
    assert timeout_of(dist.group.WORLD) == NINE
    # torch hands its default to new_group whatever the options say.
    group = dist.new_group(pg_options=options)
    assert timeout_of(group) == NINE
    group = dist.new_group(timeout=timedelta(seconds=7))
    assert timeout_of(group) == timedelta(seconds=7)
    group = dist.new_group(timeout=timedelta(seconds=7), pg_options=options)
    assert timeout_of(group) == NINE
    group = dist.split_group(split_ranks=[list(range(place.size))], pg_options=options)
    assert timeout_of(group) == NINE
    group = dist.split_group(split_ranks=[list(range(place.size))], timeout=timedelta(seconds=5))
    assert timeout_of(group) == timedelta(seconds=5)
    assert timeout_of(dist.group.WORLD) == NINE  # a child's timeout is not its parent's
    mesh = init_device_mesh(
        "cpu",
        (place.size,),
        mesh_dim_names=("dp",),
        backend_override={"dp": ("hfreduce", options)},
    )
    assert timeout_of(mesh.get_group("dp")) == NINE
    # In force, and not only shown: a rank that waits alone learns of it after that time.
    quick = dist.new_group(pg_options=hfreduce.Options(timeout=timedelta(seconds=1)))
    if place.rank == 0:
        with pytest.raises(hfreduce.TimeoutError):
            dist.all_reduce(torch.ones(3), group=quick)
    place.meet("timed out")
    group._get_backend(CPU).set_timeout(timedelta(seconds=1))
    assert timeout_of(group) == timedelta(seconds=1)
    if place.rank == 0:
        with pytest.raises(hfreduce.TimeoutError):
            dist.barrier(group=group)
    place.meet("timed out again")


def test_own_timeout_wins_everywhere() -> None:
    run_fine(timeouts, 2, backend=None)


def timeout_from_environment(place: Place) -> list[float]:
    init_group(place, timeout=timedelta(minutes=30))  # torch's default
    first = timeout_of(dist.group.WORLD).total_seconds()
    second = timeout_of(dist.new_group(timeout=timedelta(seconds=8))).total_seconds()
    return [first, second]


def test_timeout_from_environment() -> None:
    values = run_fine(
        timeout_from_environment, 2, backend=None, env={"HFREDUCE_TIMEOUT_MS": "12000"}
    )
    assert values == [[12.0, 8.0]] * 2


def test_fields_and_copies() -> None:
    import hfreduce

    options = hfreduce.Options(
        timeout=NINE, algorithm="tree", chunk_bytes=65536, streams=2, interfaces="=lo", shm=False
    )
    for again in (copy.copy(options), copy.deepcopy(options)):
        assert type(again) is hfreduce.Options
        assert again is not options
        assert again.timeout == again._timeout == NINE
        assert (again.algorithm, again.chunk_bytes, again.streams) == ("tree", 65536, 2)
        assert (again.interfaces, again.shm, again.zone) == ("=lo", False, None)
    assert options.backend == "hfreduce"
    options.timeout = timedelta(seconds=4)
    assert options._timeout == timedelta(seconds=4)
    assert isinstance(options, dist.distributed_c10d.C10DBackend.Options)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"algorithm": "ring"}, "'auto', 'direct' or 'tree'"),
        ({"timeout": timedelta(seconds=0)}, "positive"),
        ({"streams": 0}, "1 to 64"),
        ({"chunk_bytes": 12}, "4096"),
    ],
)
def test_bad_values(fields: dict[str, Any], words: str) -> None:
    import hfreduce

    with pytest.raises(hfreduce.InvalidArgumentError, match=words):
        hfreduce.Options(**fields)


def test_unknown_field() -> None:
    import hfreduce

    with pytest.raises(TypeError):
        hfreduce.Options(treads=3)  # type: ignore[call-arg]


def bad_environment(place: Place) -> str:
    import hfreduce

    with pytest.raises(hfreduce.InvalidArgumentError) as caught:
        init_group(place)
    return str(caught.value)


def test_bad_environment() -> None:
    [text] = run_fine(bad_environment, 1, backend=None, env={"HFREDUCE_ALGO": "ring"})
    assert "HFREDUCE_ALGO=ring" in text and "tree" in text


def children_of_options(place: Place) -> None:
    import hfreduce

    options = hfreduce.Options(algorithm="tree")
    init_group(place, pg_options=options)
    child = dist.split_group(split_ranks=[list(range(place.size))])
    assert child._get_backend(CPU).options.algorithm == "tree"
    x = torch.ones(3)
    dist.all_reduce(x, group=child)
    assert x[0] == place.size


def test_split_inherits_options() -> None:
    run_fine(children_of_options, 2, backend=None)


def composite(place: Place) -> None:
    for backend in ("cpu:hfreduce", "cpu:hfreduce,cuda:gloo", "HFREDUCE"):
        init_group(place, backend, name=f"{backend}.{place.size}")
        x = torch.ones(3)
        dist.all_reduce(x)
        assert x[0] == place.size
        assert dist.group.WORLD._get_backend(CPU).name() == "hfreduce"
        dist.destroy_process_group()
    init_group(place, "cpu:gloo,cuda:hfreduce", name="last")
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0] == place.size


def test_composite_backends() -> None:
    run_fine(composite, 2, backend=None)


def split(place: Place) -> list[float]:
    found = []
    for ranks in ([[0, 1]], [[2, 0], [1]]):
        group = dist.split_group(split_ranks=ranks)
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            found.append(-1.0)
            continue
        x = torch.full((2,), 1.0 + place.rank)
        dist.all_reduce(x, group=group)
        found.append(x[0].item())
    # With a device bound torch splits for new_group too, and tells those who stay outside.
    group = dist.new_group([0, 2])
    if place.rank != 1:
        x = torch.full((2,), 1.0 + place.rank)
        dist.all_reduce(x, group=group)
        found.append(x[0].item())
    return found


@pytest.mark.parametrize("init", [{}, {"device_id": torch.device("cpu:0")}])
def test_split_group(init: dict[str, Any]) -> None:
    values = run_fine(split, 3, init=init)
    assert values == [[3.0, 4.0, 4.0], [3.0, 2.0], [-1.0, 4.0, 4.0]]


def other_name(place: Place) -> None:
    import hfreduce

    hfreduce.register("mybackend")
    init_group(place, "mybackend")
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0] == place.size
    assert dist.get_backend() == "mybackend"
    assert dist.group.WORLD._get_backend(CPU).name() == "mybackend"


def test_register_under_another_name() -> None:
    run_fine(other_name, 2, backend=None)


def in_new_python(program: str, **env: str) -> str:
    import os

    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_the_package_does_not_import_torch() -> None:
    out = in_new_python(
        "import hfreduce, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    assert out.split() == ["False", "False"]


def test_importing_torch_loads_nothing_native() -> None:
    out = in_new_python(
        "import torch, sys, torch.distributed as dist\n"
        "print('hfreduce_adapter' in sys.modules)\n"
        "print(dist.is_backend_available('hfreduce'))\n"
        "print('hfreduce_adapter' in sys.modules)\n"
    )
    assert out.split() == ["False", "True", "False"]


def test_torch_survives_a_broken_installation(tmp_path: Any) -> None:
    """Whatever is wrong with this package, `import torch` must work."""
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import sys\n"
        "import hfreduce._autoload as autoload\n"
        "sys.modules['torch.distributed.distributed_c10d'] = object()\n"
        "autoload.torch_backends()\n"
    )
    out = in_new_python(
        f"import warnings; warnings.simplefilter('always'); exec(open({str(broken)!r}).read())\n"
        "del sys.modules['torch.distributed.distributed_c10d']\n"
        "import torch; print(torch.ones(1).item())\n"
    )
    assert out.split() == ["1.0"]
