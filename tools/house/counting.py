# SPDX-License-Identifier: Apache-2.0
"""Runs programs with a time limit, and counts tests from the reports that test runners write."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".state"


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __iadd__(self, other: Count) -> Count:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        return self

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


def run(command: list[str], limit_s: float, env: dict[str, str] | None = None) -> int:
    """Runs a command in the tree's root and returns its exit code; 124 past the limit, when all
    that it started is ended too."""
    print(f"$ {shlex.join(command)}", flush=True)
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        say(f"not finished after {limit_s / 60:.0f} minutes, ended: {shlex.join(command)}")
        return 124
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def check(name: str, command: list[str], limit_s: float = 600, **options: dict[str, str]) -> Count:
    """A check that passes or fails as a whole."""
    start = time.monotonic()
    code = run(command, limit_s, **options)
    if code != 0:
        say(f"{name}: failed, exit code {code}")
        return Count(failed=1)
    say(f"{name}: passed in {time.monotonic() - start:.0f} s")
    return Count(passed=1)


def with_reports(
    command: list[str], reports: Path, limit_s: float, env: dict[str, str] | None = None
) -> Count:
    """Runs tests that write JUnit reports to `reports` (a file, or a folder of files). What the
    exit code says and the reports do not (a crash, no tests at all) counts as one failure."""
    for old in report_files(reports):
        old.unlink()
    code = run(command, limit_s, env)
    count = Count()
    for file in report_files(reports):
        count += read_report(file)
    if count.failed == 0 and (code != 0 or count.passed == 0):
        say(f"exit code {code} with {count}: counted as a failure")
        count.failed = 1
    return count


def report_files(reports: Path) -> list[Path]:
    if reports.is_dir():
        return sorted(reports.glob("*.xml"))
    return [reports] if reports.is_file() else []


def read_report(file: Path) -> Count:
    """Counts the cases of a JUnit report, as pytest and GoogleTest write them."""
    try:
        root = ElementTree.parse(file).getroot()
    except ElementTree.ParseError:  # its writer died
        return Count(failed=1)
    count = Count()
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed += 1
        elif case.find("skipped") is not None:
            count.skipped += 1
        elif case.get("status") != "notrun":  # GoogleTest: disabled
            count.passed += 1
    return count
