# SPDX-License-Identifier: Apache-2.0
"""Runs tests of torch's suite in one view and writes one line of JSON a test.

A process of its own for each view, since the suite looks at BACKEND and WORLD_SIZE when imported.
Runners and ranks are forked from it: the suite is imported once instead of once a rank and test,
which is the difference between one minute and twenty.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import sys
import time
import unittest
from pathlib import Path
from typing import Any

from views import OURS, VIEWS, View

# Tests whose bodies have a branch for each backend they have heard of, and none for others.
_BODY_KNOWS_NAMES = ("test_accumulate_gradients_no_sync",)


def load_suite(view: View) -> Any:
    """The suite's module, with its gates set for `view` and its BACKEND ours."""
    os.environ["BACKEND"] = view.gate
    from torch.testing._internal.common_distributed import DistTestCases

    if view.ours:
        register(view)
    if view.backend == OURS:
        for feature in ("plugin", "gpu", "cuda", "ddp", "subgroup"):
            DistTestCases.backend_feature[feature].add(OURS)

    from torch.testing._internal.distributed import distributed_test as module

    os.environ["BACKEND"] = view.backend
    module.BACKEND = view.backend
    if view.backend == OURS:
        module.PROFILING_SUPPORTED_BACKENDS.append(OURS)
        module.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(OURS)
    elif view.ours:
        module.get_profiling_event = by_our_name(module.get_profiling_event, view.backend)
    return module


def by_our_name(plain: Any, borrowed: str) -> Any:
    """Looks for profiler ranges under the name that our engine gives them."""

    def get_profiling_event(name: str, *args: Any, **kwargs: Any) -> Any:
        if not name.startswith(f"{borrowed}:"):
            return plain(name, *args, **kwargs)
        events = plain(OURS + name.removeprefix(borrowed), *args, **kwargs)
        for event in events:
            event.name = borrowed + event.name.removeprefix(OURS)
        return events

    return get_profiling_event


def register(view: View) -> None:
    """Puts our constructor behind the view's backend name."""
    import torch.distributed as dist

    if not dist.is_backend_available(OURS):
        sys.exit(f"no backend {OURS!r} is registered: install this package (pip install -e .)")
    dist.distributed_c10d._create_process_group_wrapper = wrap_for_debugging
    if view.backend == OURS:
        return
    create = dist.Backend._plugins[OURS.upper()].creator_fn
    if view.backend == "mpi":
        create = meeting_like_mpi(create)
    # The type stays CUSTOM: DDP's logger takes any backend of the type GLOO for torch's own class
    # and crashes on another.
    dist.Backend.register_backend(view.backend, create, extended_api=True, devices=["cpu", "cuda"])


def wrap_for_debugging(
    wrapped_pg: Any, store_prefix: str, store: Any, rank: int, world_size: int, timeout: Any
) -> Any:
    """torch's checker of TORCH_DISTRIBUTED_DEBUG=DETAIL, with a group of ours for its own calls,
    for which torch makes a Gloo group whatever the backend is."""
    from torch.distributed import distributed_c10d as c10d

    from hfreduce._backend import create

    options = c10d._DistributedBackendOptions()
    options.store = c10d.PrefixStore(f"debug:{store_prefix}", store)
    options.group_rank, options.group_size = rank, world_size
    options.timeout = timeout
    options.group_id = f"debug:{store_prefix}"
    return c10d._ProcessGroupWrapper(wrapped_pg, create(OURS, options, None))


def meeting_like_mpi(create: Any) -> Any:
    """torch gives MPI neither store nor rank, since mpirun has told MPI both. Forking told us."""
    import torch.distributed as dist

    def create_by_file(options: Any, backend_options: Any) -> Any:
        size = int(os.environ["WORLD_SIZE"])
        store = dist.FileStore(f"{os.environ['TEMP_DIR']}/instead_of_mpirun", size)
        options.store = dist.PrefixStore(f"{options.group_id}/", store)
        if options.group_rank < 0:  # the default group
            options.group_rank, options.group_size = int(os.environ["RANK"]), size
        return create(options, backend_options)

    return create_by_file


def test_class(module: Any, view: View, probe: Any) -> type[unittest.TestCase]:
    import torch

    fork = torch.multiprocessing.get_context("fork").Process

    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc]
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(fork)

        @classmethod
        def _run(cls, rank: int, test_name: str, *args: Any, **kwargs: Any) -> None:
            os.environ["RANK"] = str(rank)
            probe.begin()
            try:
                super()._run(rank, test_name, *args, **kwargs)
            finally:
                probe.end(test_name, rank)

        def run_test(self, test_name: str, *args: Any) -> None:
            if test_name.startswith(_BODY_KNOWS_NAMES):
                module.BACKEND = view.gate  # the group is there; nobody else asks in this process
            super().run_test(test_name, *args)

    return Suite


class Outcome(unittest.TestResult):
    """Keeps what became of the last test."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome = "pass"
        self.reason = ""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.outcome, self.reason = "pass", ""

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.outcome, self.reason = "skip", reason

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.outcome, self.reason = "fail", self._exc_info_to_string(err, test)

    addError = addFailure

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.outcome, self.reason = "expected failure", ""

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.outcome, self.reason = "fail", "passed, though marked as an expected failure"


def evidence(folder: Path, test: str) -> dict[str, int]:
    """The ranks' records of `test`, added up."""
    total = {"ranks": 0, "calls": 0, "monitored_barriers": 0, "gloo": 0, "operations": 0}
    for path in folder.glob(f"{test}.*.json"):
        record = json.loads(path.read_text())
        total["ranks"] += 1
        for key in total:
            total[key] += record.get(key, 0)
        path.unlink()
    return total


def run_tests(suite: type[unittest.TestCase], names: list[str], turn: Any, out: Path) -> None:
    """Runs the tests whose turn it is until there are none; other runners take the rest."""
    records = out.with_suffix(".records")
    with out.open("w") as lines:
        while True:
            with turn.get_lock():
                index = turn.value
                turn.value += 1
            if index >= len(names):
                return
            name = names[index]
            print(f"=== {name}", flush=True)
            result = Outcome()
            start = time.monotonic()
            suite(name).run(result)
            line = {
                "test": name,
                "outcome": result.outcome,
                "reason": result.reason,
                "seconds": round(time.monotonic() - start, 2),
                **evidence(records, name),
            }
            print(f"--- {name}: {result.outcome} {result.reason}", flush=True)
            lines.write(json.dumps(line) + "\n")
            lines.flush()


def runner(module: Any, view: View, names: list[str], turn: Any, out: Path, log: Path) -> None:
    """In a process of its own."""
    with log.open("w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    records = out.with_suffix(".records")
    records.mkdir()
    # Of one test, which makes its group anew; runners must not meet there.
    module.INIT_METHOD = f"file://{records}/rendezvous"

    from probe import Probe

    probe = Probe(records, view.ours)
    probe.install()
    run_tests(test_class(module, view, probe), names, turn, out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--view", choices=VIEWS, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--tests", type=Path, help="file with one name a line; absent: every test")
    parser.add_argument("--runners", type=int, default=1, help="tests at once")
    parser.add_argument("--out", type=Path, required=True, help="folder for what came out")
    parser.add_argument("--log", type=Path, required=True, help="path; runner N adds -N.log")
    args = parser.parse_args()
    sys.argv = sys.argv[:1]  # torch's test helpers read the command line when imported
    faulthandler.enable()

    view = VIEWS[args.view]
    os.environ["WORLD_SIZE"] = str(args.world)
    # The test that uses this applies only if it is a file; each runner has one of its own.
    os.environ["INIT_METHOD"] = f"file://{args.out}/rendezvous"
    os.environ["TEMP_DIR"] = str(args.out)  # each test replaces it by a folder of its own
    module = load_suite(view)
    names = unittest.TestLoader().getTestCaseNames(test_class(module, view, None))
    if args.tests is not None:
        wanted = set(args.tests.read_text().split())
        unknown = wanted - set(names)
        if unknown:
            sys.exit(f"no such tests in torch's suite: {', '.join(sorted(unknown))}")
        names = [name for name in names if name in wanted]

    context = multiprocessing.get_context("fork")
    turn = context.Value("i", 0)
    runners = []
    for index in range(args.runners):
        log = args.log.with_name(f"{args.log.name}-{index}.log")
        out = args.out / f"{index}.jsonl"
        process = context.Process(target=runner, args=(module, view, names, turn, out, log))
        process.start()
        runners.append(process)
    for process in runners:
        process.join()
    return max(abs(process.exitcode or 0) for process in runners)


if __name__ == "__main__":
    sys.exit(main())
