# SPDX-License-Identifier: Apache-2.0
"""The command line that every benchmark shares, and what it does from start to end."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import docs, machine, report
from .cases import BenchError, Case
from .rounds import Group, Samples, interleave
from .state import STATE, say
from .targets import evaluate, load

FULL_ROUNDS, QUICK_ROUNDS = 5, 2


@dataclass(frozen=True)
class Bench:
    name: str
    describe: str
    groups: Callable[[bool], list[Group]]  # given: quick?
    plot: Callable[[Path, Samples], Path | None]


def main(bench: Bench, arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"{bench.name}.py", description=bench.describe)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the result there (SVG)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter loops")
    parser.add_argument("--rounds", type=int, help=f"instead of {FULL_ROUNDS} ({QUICK_ROUNDS})")
    parser.add_argument(
        "--docs", action="store_true", help="write table, plot and JSON into docs/ as well"
    )
    args = parser.parse_args(arguments)
    rounds = args.rounds or (QUICK_ROUNDS if args.quick else FULL_ROUNDS)
    if args.docs and rounds < FULL_ROUNDS:
        parser.error(f"--docs wants {FULL_ROUNDS} rounds at least")
    # One thread a rank, as torchrun sets it; before anything imports torch or numpy.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    STATE.mkdir(parents=True, exist_ok=True)
    machine.warn_if_busy()
    facts = machine.describe()
    start = time.monotonic()
    try:
        groups = bench.groups(args.quick)
        samples = interleave(groups, rounds)
    except BenchError as error:
        say(f"{bench.name}: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    seconds = time.monotonic() - start
    cases: set[Case] = {case for group in groups for job in group.jobs for case in job.cases}
    targets = load(bench.name)
    rows = evaluate(targets, samples, cases)
    report.print_measurements(samples)
    report.print_rows(rows)
    report.print_not_measured(samples)
    if len(rows) < len(targets):
        print(f"{len(targets) - len(rows)} targets are outside this quick run")
    print(f"{rounds} rounds in {seconds:.0f} s{' (quick)' if args.quick else ''}")
    result = {
        "bench": bench.name,
        "machine": facts,
        "rows": [dataclasses.asdict(row) for row in rows],
        "quick": args.quick,
        "rounds": rounds,
        "seconds": round(seconds, 1),
        "not_measured": report.not_measured(samples),
        "measurements": report.measurements(samples),
    }
    if args.json:
        report.write_json(args.json, result)
    if args.plot:
        bench.plot(args.plot, samples)
    if args.docs:
        report.write_json(docs.FOLDER / f"{bench.name}.json", result)
        plot = bench.plot(docs.FOLDER / f"{bench.name}.svg", samples)
        docs.update_page(bench.name, result, plot)
    return 0


def run(bench: Bench) -> None:
    sys.exit(main(bench))
