# SPDX-License-Identifier: Apache-2.0
"""Contenders that are backends of torch.distributed."""

from __future__ import annotations

import datetime
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from .cases import BenchError, Case, Measure, Plan
from .fork import fork_ranks
from .launch import run_quietly
from .peers import Contender
from .place import Place
from .state import ROOT, SOURCES, STATE, say

RECORDER_ON, RECORDER_OFF = "flight recorder on", "flight recorder off"


def init_and(
    backend: str, work: Callable[[int], Any], place: Place, folder: str, timeout_s: float, mode: str
) -> Callable[[int], Any]:
    """What a forked rank does: enter its node, join the group, work, leave."""

    def run(rank: int) -> Any:
        place.enter(rank)
        os.environ.update(place.env(rank))
        if mode == RECORDER_OFF:
            os.environ["TORCH_FR_BUFFER_SIZE"] = "0"
        elif mode == RECORDER_ON:
            os.environ.pop("TORCH_FR_BUFFER_SIZE", None)  # torch's default: 2000 entries
        os.environ["LOCAL_RANK"] = str(rank % place.local_ranks)
        os.environ["LOCAL_WORLD_SIZE"] = str(place.local_ranks)
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group(
            backend,
            init_method=f"file://{folder}/rendezvous",
            rank=rank,
            world_size=place.ranks,
            timeout=datetime.timedelta(seconds=timeout_s),
        )
        if dist.get_backend() != backend:
            raise BenchError(f"asked for {backend}, got {dist.get_backend()}")
        result = work(rank)
        if backend == Hfreduce.backend:
            import hfreduce

            if hfreduce.counters()["operations"] == 0:
                raise BenchError("the engine has done nothing: another backend ran instead")
        if backend != Noop.backend:
            dist.barrier()
        dist.destroy_process_group()
        return result

    return run


class TorchBackend(Contender):
    backend: str

    def run(self, cases: Sequence[Case], plan: Plan, place: Place) -> dict[Case, Measure]:
        from .torch_loops import measure_cases

        collective = self.backend != Noop.backend
        work = lambda _: measure_cases(list(cases), plan, collective)
        results = self.on_ranks(work, plan, place, cases[0].mode)
        found = {}
        for index, case in enumerate(cases):
            mine = [result[index] for result in results]
            names = ("median_us", "b2b_us", "p99_us", "iters")
            found[case] = Measure(**{name: max(one[name] for one in mine) for name in names})
        return found

    def on_ranks(
        self, work: Callable[[int], Any], plan: Plan, place: Place, mode: str = ""
    ) -> list[Any]:
        import torch.distributed  # noqa: F401 (once, before the ranks are forked)

        self._register()
        with tempfile.TemporaryDirectory(prefix="hfreduce-bench-") as folder:
            run = init_and(self.backend, work, place, folder, plan.timeout_s, mode)
            return fork_ranks(place.ranks, run, plan.timeout_s)

    def _register(self) -> None:
        """Makes the backend known to torch in this process, before it forks."""


class Gloo(TorchBackend):
    key, label, backend = "gloo", "Gloo", "gloo"


class Hfreduce(TorchBackend):
    key, label, backend = "hfreduce", "HFReduce", "hfreduce"

    PROBE = """
import sys, tempfile, torch, torch.distributed as dist
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("hfreduce", init_method=f"file://{folder}/s", rank=0, world_size=1)
    value = torch.ones(4)
    dist.all_reduce(value)
    dist.destroy_process_group()
    sys.exit(0 if value.sum() == 4 else "all_reduce of one rank is wrong")
"""

    def prepare(self) -> None:
        """One rank alone, in a process of its own: builds what is built at first use."""
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")}
        done = subprocess.run(
            [sys.executable, "-c", self.PROBE], check=False, capture_output=True, text=True, env=env
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise BenchError(f'init_process_group("hfreduce") failed: {lines[-1].strip()[:200]}')


class Noop(TorchBackend):
    """A backend that does nothing: what torch itself costs around a collective."""

    key, label, backend = "noop", "no-op backend", "noop"

    BUILD = """
import os, sys
from torch.utils import cpp_extension
os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]  # ninja
flags = ["-O2", "-std=c++20"]
folder, source = sys.argv[1:]
cpp_extension.load("noop_backend", [source], build_directory=folder, extra_cflags=flags)
"""

    def prepare(self) -> None:
        build = STATE / "noop"
        source = SOURCES / "noop" / "noop_backend.cpp"
        library = build / "noop_backend.so"
        build.mkdir(parents=True, exist_ok=True)
        if not library.exists():
            say("building the no-op backend (about 20 s)")
        command = [sys.executable, "-c", self.BUILD, str(build), str(source)]
        run_quietly(command, "building the no-op backend")
        import torch  # noqa: F401 (the library needs torch's)

        spec = importlib.util.spec_from_file_location("noop_backend", library)
        assert spec and spec.loader
        self._module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._module)

    def _register(self) -> None:
        import torch.distributed as dist

        if not dist.is_backend_available(self.backend):
            dist.Backend.register_backend(self.backend, self._module.create, devices=["cpu"])
