# SPDX-License-Identifier: Apache-2.0
"""Contenders that are programs in C or C++: libhfreduce, the MPI libraries, memcpy, a TCP ring."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .cases import BenchError, Case, Measure, Plan
from .launch import Command, run_quietly, run_together
from .place import Place
from .state import STATE, build_core, compile_c, say

INTEL_MPI_VERSION = "2021.18.1"


class Contender(ABC):
    """Does the work of cases. All cases of one call share layout, link and mode."""

    key: str  # as targets.toml names it
    label: str  # as people read it

    def prepare(self) -> None:
        """Sets up, installs, builds. BenchError: cannot be run here, and why."""

    @abstractmethod
    def run(self, cases: Sequence[Case], plan: Plan, place: Place) -> dict[Case, Measure]: ...


def _work_arguments(cases: Iterable[Case], plan: Plan) -> list[str]:
    cases = list(cases)
    ops = ",".join(dict.fromkeys(case.op for case in cases))
    sizes = ",".join(str(size) for size in dict.fromkeys(case.size for case in cases))
    budget = ["--budget-ms", str(plan.budget_ms), "--min-iters", str(plan.min_iters)]
    return ["--ops", ops, "--sizes", sizes, *budget]


def _collect(cases: Sequence[Case], lines: Iterable[dict[str, Any]]) -> dict[Case, Measure]:
    found = {}
    by_work = {(case.op, case.size, case.buffers): case for case in cases}
    for line in lines:
        case = by_work.get((line["op"], line["bytes"], line["buffers"]))
        if case is not None:
            names = ("median_us", "b2b_us", "p99_us", "iters")
            found[case] = Measure(**{name: line[name] for name in names})
    return found


class Mpi(Contender):
    """An MPI library, started by its own launcher with its own defaults."""

    def __init__(self) -> None:
        self._program = Path()

    @abstractmethod
    def _command(self, ranks: int) -> list[str]: ...

    def _env(self) -> dict[str, str]:
        return {}

    def run(self, cases: Sequence[Case], plan: Plan, place: Place) -> dict[Case, Measure]:
        argv = [*self._command(place.ranks), str(self._program), *_work_arguments(cases, plan)]
        return _collect(cases, run_together([Command(argv, self._env())], plan.timeout_s))


class OpenMpi(Mpi):
    key, label = "openmpi", "Open MPI"

    def prepare(self) -> None:
        text = run_quietly(["mpirun.openmpi", "--version"], "Open MPI (Debian: openmpi-bin)")
        self.label = f"Open MPI {_version(text)}"
        self._program = compile_c("mpi_bench.c", "mpi_bench_openmpi", ["mpicc.openmpi"])

    def _command(self, ranks: int) -> list[str]:
        return ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks)]


class Mpich(Mpi):
    key, label = "mpich", "MPICH"

    def prepare(self) -> None:
        text = run_quietly(["mpirun.mpich", "--version"], "MPICH (Debian: mpich)")
        self.label = f"MPICH {_version(text)}"
        self._program = compile_c("mpi_bench.c", "mpi_bench_mpich", ["mpicc.mpich"])

    def _command(self, ranks: int) -> list[str]:
        return ["mpirun.mpich", "-np", str(ranks)]


class IntelMpi(Mpi):
    """From PyPI, into a folder of its own; shared memory only."""

    key, label = "intelmpi", f"Intel MPI {INTEL_MPI_VERSION}"

    def prepare(self) -> None:
        if sys.platform != "linux" or os.uname().machine != "x86_64":
            raise BenchError("Intel MPI exists for x86-64 Linux only")
        self._root = STATE / f"intel-mpi-{INTEL_MPI_VERSION}"
        done = self._root / ".complete"
        if not done.exists():
            say(f"installing {self.label} into {self._root}")
            shutil.rmtree(self._root, ignore_errors=True)
            run_quietly([sys.executable, "-m", "venv", str(self._root)], "Intel MPI's environment")
            packages = [f"{name}=={INTEL_MPI_VERSION}" for name in ("impi-rt", "impi-devel")]
            pip = [str(self._root / "bin" / "pip"), "install", "--quiet", *packages]
            run_quietly(pip, "installing Intel MPI")
            done.touch()
        lib = self._root / "lib"
        # impi-devel's mpicc holds paths of the machine it was made on; these flags are all of it.
        flags = [f"-I{self._root / 'include'}", f"-L{lib}", "-lmpi", f"-Wl,-rpath,{lib}"]
        self._program = compile_c("mpi_bench.c", "mpi_bench_intel", ["cc"], flags)

    def _command(self, ranks: int) -> list[str]:
        return [str(self._root / "bin" / "mpiexec.hydra"), "-np", str(ranks)]

    def _env(self) -> dict[str, str]:
        return {"I_MPI_ROOT": str(self._root), "I_MPI_FABRICS": "shm"}


class Core(Contender):
    """libhfreduce in C++, without torch."""

    key, label = "hfreduce", "HFReduce"

    def prepare(self) -> None:
        self._program = build_core()

    def run(self, cases: Sequence[Case], plan: Plan, place: Place) -> dict[Case, Measure]:
        found = {}
        kinds = dict.fromkeys((case.dtype, case.buffers) for case in cases)
        for dtype, buffers in kinds:
            part = [case for case in cases if (case.dtype, case.buffers) == (dtype, buffers)]
            arguments = [*_work_arguments(part, plan), "--dtype", dtype, "--buffers", buffers]
            found.update(_collect(part, self._launch(arguments, plan, place)))
        return found

    def _launch(self, arguments: list[str], plan: Plan, place: Place) -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix="hfreduce-bench-") as folder:
            commands = []
            for rank in range(place.ranks):
                argv = [*place.prefix(rank), str(self._program), "--rank", str(rank)]
                argv += ["--ranks", str(place.ranks), "--store", folder, *arguments]
                commands.append(Command(argv, place.env(rank)))
            return run_together(commands, plan.timeout_s)


class Memcpy(Contender):
    """All ranks at once copy as many bytes from one buffer of their own to another."""

    key, label = "memcpy", "memcpy"

    def prepare(self) -> None:
        self._program = compile_c("memcpy_bench.c", "memcpy_bench", ["cc"])

    def run(self, cases: Sequence[Case], plan: Plan, place: Place) -> dict[Case, Measure]:
        argv = [str(self._program), "--ranks", str(place.ranks), *_work_arguments(cases, plan)]
        return _collect(cases, run_together([Command(argv)], plan.timeout_s))


class TcpRing(Contender):
    """The raw limit of the network: see c/tcp_ring.c. One process a node; the better of one and two
    connections between neighbours counts."""

    key, label = "ring", "raw TCP ring"
    PORT = 7700

    def prepare(self) -> None:
        self._program = compile_c("tcp_ring.c", "tcp_ring", ["cc"])

    def run(self, cases: Sequence[Case], plan: Plan, place: Place) -> dict[Case, Measure]:
        if place.spaces is None:
            raise BenchError("the ring runs on emulated nodes only")
        best: dict[Case, Measure] = {}
        for streams in (1, 2):
            for case, measure in self._launch(streams, cases, plan, place).items():
                if case not in best or measure.median_us < best[case].median_us:
                    best[case] = measure
        return best

    def _launch(
        self, streams: int, cases: Sequence[Case], plan: Plan, place: Place
    ) -> dict[Case, Measure]:
        assert place.spaces is not None
        addresses = ",".join(place.spaces.address(node) for node in range(place.nodes))
        commands = []
        for node in range(place.nodes):
            argv = [*place.spaces.prefix(node), str(self._program), "--rank", str(node)]
            argv += ["--ranks", str(place.nodes), "--addresses", addresses]
            argv += ["--port", str(self.PORT), "--streams", str(streams)]
            commands.append(Command([*argv, *_work_arguments(cases, plan)]))
        return _collect(cases, run_together(commands, plan.timeout_s))


class LinkRate(Contender):
    """Not run but computed: 2(n-1)/n * N bytes at the links' rate, n nodes."""

    key, label = "bound", "2(n-1)/n·N ÷ rate"

    def run(self, cases: Sequence[Case], plan: Plan, place: Place) -> dict[Case, Measure]:
        found = {}
        for case in cases:
            bits_per_us = rate_bits_per_s(case.link) / 1e6
            moved = 2 * (case.nodes - 1) / case.nodes * case.size
            time_us = moved * 8 / bits_per_us
            found[case] = Measure(time_us, time_us, time_us, 1)
        return found


def rate_bits_per_s(link: str) -> float:
    match = re.fullmatch(r"(\d+)(k|m|g)bit", link)
    if match is None:
        raise BenchError(f"no rate: {link}")
    return int(match[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[match[2]]


def _version(text: str) -> str:
    match = re.search(r"\d+\.\d+(\.\d+)?", text)
    return match[0] if match else "?"


MPI_KEYS = ("openmpi", "mpich", "intelmpi")


def mpi_libraries() -> list[Contender]:
    return [OpenMpi(), Mpich(), IntelMpi()]
