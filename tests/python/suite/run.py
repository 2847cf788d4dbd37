# SPDX-License-Identifier: Apache-2.0
"""Runs torch's own distributed suite, from the installed wheel, over hfreduce.

    python tests/python/suite/run.py              every view, world sizes 3, 4 and 8
    python tests/python/suite/run.py --view name --test test_all_reduce_sum --world 3
    python tests/python/suite/run.py --write      and write docs/torch-suite.md

A test counts when Gloo passes it here (the outcome is kept in .state/suite for this torch and this
test file). It must then pass over hfreduce, by name and by masquerade; if it communicates, our
engine must have finished operations and no Gloo group may have been made.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import report
from views import VIEWS, View

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[2]
STATE = TREE / ".state" / "suite"
DOC = TREE / "docs" / "torch-suite.md"
WORLDS = (3, 4, 8)
LANES = 2  # views at once, so that one runs tests while the next imports torch

Rows = dict[str, dict[str, Any]]  # by test


def suite_file() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit("torch is not installed here")
    return Path(spec.origin).parent / "testing/_internal/distributed/distributed_test.py"


def baseline_key() -> str:
    """Names a Gloo baseline: this torch, its test file, this Python, and how we run it."""
    digest = hashlib.sha256(suite_file().read_bytes())
    digest.update(suite_file().parent.parent.joinpath("common_distributed.py").read_bytes())
    for name in ("worker.py", "probe.py"):
        digest.update((HERE / name).read_bytes())
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"{version('torch')}-py{python}-{digest.hexdigest()[:12]}"


def run_view(view: View, world: int, tests: list[str] | None, jobs: int) -> Rows:
    """Runs `tests` (None: all), `jobs` at once, and returns a row a test."""
    STATE.mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        # A test that hangs is torn down by the suite itself after this many seconds.
        "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": os.environ.get(
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "120"
        ),
    }
    env.pop("TORCH_DISTRIBUTED_DEBUG", None)
    rows: Rows = {}
    log = STATE / f"{view.name}-{world}"
    with tempfile.TemporaryDirectory(prefix="hfreduce-suite-") as name:
        folder = Path(name)
        command = [sys.executable, str(HERE / "worker.py"), "--view", view.name]
        command += ["--world", str(world), "--runners", str(jobs)]
        command += ["--out", str(folder), "--log", str(log)]
        if tests is not None:
            (folder / "tests").write_text("\n".join(tests))
            command += ["--tests", str(folder / "tests")]
        worker = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if worker.returncode != 0:
            sys.exit(
                f"the suite did not run to its end (code {worker.returncode}), see {log}-N.log:\n"
                f"{worker.stdout[-3000:]}"
            )
        for out in folder.glob("*.jsonl"):
            for line in out.read_text().splitlines():
                row = json.loads(line)
                rows[row.pop("test")] = row
    return dict(sorted(rows.items()))


def gloo_baseline(world: int, tests: list[str] | None, jobs: int, fresh: bool) -> Rows:
    scope = "all" if tests is None else hashlib.sha256("\n".join(tests).encode()).hexdigest()[:12]
    path = STATE / f"gloo-{baseline_key()}-{world}-{scope}.json"
    if path.exists() and not fresh:
        rows: Rows = json.loads(path.read_text())
        print(f"gloo at world size {world}: kept from an earlier run ({path.name})", flush=True)
        return rows
    rows = timed(VIEWS["gloo"], world, tests, jobs)
    failed = [test for test, row in rows.items() if row["outcome"] == "fail"]
    if failed:
        # A failure under load would quietly shrink what hfreduce is held to.
        print(f"  run again alone: {', '.join(failed)}", flush=True)
        rows.update(run_view(VIEWS["gloo"], world, failed, 1))
    path.write_text(json.dumps(rows, indent=1))
    return rows


def gloo_baselines(worlds: list[int], jobs: int, fresh: bool) -> dict[int, Rows]:
    smallest, *larger = worlds
    baseline = {smallest: gloo_baseline(smallest, None, jobs, fresh)}
    worth = report.worth_trying(baseline[smallest])
    lanes = min(LANES, jobs)
    with ThreadPoolExecutor(lanes) as pool:
        # The largest world takes longest, so it goes first.
        runs = {
            world: pool.submit(gloo_baseline, world, worth, jobs // lanes, fresh)
            for world in reversed(larger)
        }
    return baseline | {world: runs[world].result() for world in larger}


def run_ours(
    views: list[str], baseline: dict[int, Rows], only: list[str] | None, jobs: int
) -> dict[tuple[str, int], Rows]:
    lanes = min(LANES, jobs)
    runs = {}
    with ThreadPoolExecutor(lanes) as pool:
        for world in sorted(baseline, reverse=True):
            for name in views:
                tests = report.expected(VIEWS[name], baseline[world])
                if only:
                    tests = [test for test in tests if test in only]
                if tests:
                    runs[name, world] = pool.submit(timed, VIEWS[name], world, tests, jobs // lanes)
    return {
        (name, world): runs[name, world].result()
        for name in views
        for world in sorted(baseline)
        if (name, world) in runs
    }


def timed(view: View, world: int, tests: list[str] | None, jobs: int) -> Rows:
    start = time.monotonic()
    rows = run_view(view, world, tests, jobs)
    passed = sum(row["outcome"] == "pass" for row in rows.values())
    skipped = sum(row["outcome"] == "skip" for row in rows.values())
    print(
        f"{view.name} at world size {world}: {len(rows)} tests, {passed} passed, "
        f"{skipped} not applicable, {time.monotonic() - start:.0f} s",
        flush=True,
    )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ours = [view.name for view in VIEWS.values() if view.ours]
    parser.add_argument("--view", action="append", choices=ours, help="default: all of them")
    parser.add_argument("--world", action="append", type=int, help="default: 3, 4 and 8")
    parser.add_argument("--test", action="append", help="only this test (may be given again)")
    parser.add_argument("--fresh", action="store_true", help="run Gloo again, whatever is kept")
    parser.add_argument("--gloo-only", action="store_true", help="make the Gloo baseline, no more")
    parser.add_argument("--jobs", type=int, default=4, help="tests at once (default 4)")
    parser.add_argument("--write", action="store_true", help="write docs/torch-suite.md")
    parser.add_argument("--json", type=Path, help="write every row here")
    args = parser.parse_args()
    worlds = sorted(args.world or WORLDS)
    whole = not (args.view or args.world or args.test)
    if args.write and not whole:
        parser.error("--write needs the whole run: leave out --view, --world and --test")

    baseline = gloo_baselines(worlds, args.jobs, args.fresh)
    if args.gloo_only:
        return 0
    results = run_ours(args.view or ours, baseline, args.test, args.jobs)
    if not results:
        sys.exit("nothing to run: Gloo passes none of these tests")

    problems = report.blind(baseline) + report.problems(results)
    for problem in problems:
        print(problem)
    if problems:
        print(f"the whole output of each run: {STATE}/VIEW-WORLD-N.log")
    if args.json:
        for (view, world), rows in results.items():
            for test, row in rows.items():
                row["verdict"] = report.verdict(results, view, world, test)
        named = {f"{view}@{world}": rows for (view, world), rows in results.items()}
        args.json.write_text(json.dumps(named, indent=1))
    if whole and not problems:
        out_of_date = report.publish(DOC, baseline, results, write=args.write)
        for problem in out_of_date:
            print(problem)
        problems += out_of_date
    total = sum(len(rows) for rows in results.values())
    print(f"torch's suite: {total} runs, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
