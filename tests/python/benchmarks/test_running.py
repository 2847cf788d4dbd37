# SPDX-License-Identifier: Apache-2.0
"""Ranks are started, heard and always cleaned up; pages are written between their markers only."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import docs, state
from benchmarks.harness.cases import BenchError, Case, Measure, Plan
from benchmarks.harness.fork import fork_ranks
from benchmarks.harness.launch import Command, run_together
from benchmarks.harness.peers import Contender, Memcpy
from benchmarks.harness.place import Place
from benchmarks.harness.rounds import Group, Job, interleave

CASE = Case("core", "allreduce", "fp32", "1x2", 8)
PLAN = Plan(budget_ms=1, min_iters=2, timeout_s=30)


def python(code: str) -> Command:
    return Command([sys.executable, "-c", code])


def test_json_lines_of_all_are_collected() -> None:
    lines = run_together([python("print('hello'); print('{\"a\": 1}')")] * 2, 30)
    assert lines == [{"a": 1}, {"a": 1}]


def test_one_failure_ends_all_and_says_why(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    stay = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    wait = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.01)\n"
    with pytest.raises(BenchError, match="exited with 3: out of luck"):
        run_together(
            [python(stay), python(wait + "import sys; print('out of luck', file=sys.stderr)\n"
                                         "sys.exit(3)")],
            30,
        )  # fmt: skip
    assert gone(int(mark.read_text()))


def test_timeout_ends_all() -> None:
    start = time.monotonic()
    with pytest.raises(BenchError, match="not done after"):
        run_together([python("import time; time.sleep(60)")], 0.5)
    assert time.monotonic() - start < 30


def test_forks_answer_in_order_of_rank() -> None:
    assert fork_ranks(3, lambda rank: rank * 10, 30) == [0, 10, 20]


def test_a_failing_fork_ends_all_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []

    def work(rank: int) -> Any:
        if rank == 1:
            raise ValueError("no such luck")
        time.sleep(60)
        return None

    fork = os.fork

    def counted() -> int:
        pid = fork()
        pids.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", counted)
    with pytest.raises(BenchError, match="rank 1 failed: ValueError: no such luck"):
        fork_ranks(2, work, 30)
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class Recorder(Contender):
    def __init__(self, key: str, log: list[str], error: str | None = None) -> None:
        self.key = self.label = key
        self._log, self._error = log, error

    def run(self, cases: Any, plan: Plan, place: Place) -> dict[Case, Measure]:
        self._log.append(self.key)
        if self._error:
            raise BenchError(self._error)
        return {case: Measure(1.0, 1.0, 1.0, 1) for case in cases}


def test_rounds_interleave_and_rotate() -> None:
    log: list[str] = []
    jobs = [Job(Recorder(key, log), [CASE]) for key in "abc"]
    samples = interleave([Group(jobs, PLAN, "test")], 3)
    assert log == list("abcbcacab")
    assert len(samples.values("b", CASE, "median_us")) == 3


def test_a_contender_that_fails_is_left_out_with_its_reason() -> None:
    log: list[str] = []
    jobs = [Job(Recorder("a", log), [CASE]), Job(Recorder("b", log, "it broke"), [CASE])]
    samples = interleave([Group(jobs, PLAN, "test")], 3)
    assert log.count("b") == 1
    assert samples.failures == {("b", CASE): "it broke"}
    assert samples.median("b", CASE, "median_us") is None


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_memcpy_reports_each_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "STATE", tmp_path)
    memcpy = Memcpy()
    memcpy.prepare()
    cases = [Case("core", "memcpy", "fp32", "1x3", size) for size in (4096, 65536)]
    found = memcpy.run(cases, PLAN, Place(1, 3))
    assert set(found) == set(cases)
    assert all(0 < m.median_us <= m.p99_us and m.iters >= 2 for m in found.values())


def test_a_page_is_written_between_its_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "benchmarks.md"
    monkeypatch.setattr(docs, "PAGE", page)
    page.write_text("before\n<!-- begin ddp -->\nold\n<!-- end ddp -->\nafter\n")
    row = {"work": "w|x", "ours": 1.0, "theirs": 2.0, "ratio": 2.0, "target": "a >= 1", "met": True}
    report = {
        "bench": "ddp",
        "machine": {"date": "d", "cores": 2, "cpu": "c", "simd": "s", "kernel": "k", "torch": "t"},
        "rounds": 5,
        "seconds": 60,
        "rows": [{**row, "peer": "Gloo"}],
        "not_measured": [],
    }
    for _ in range(2):  # writing twice changes nothing more
        docs.update_page("ddp", report, None)
        text = page.read_text()
        assert text.startswith("before\n<!-- begin ddp -->\n")
        assert text.endswith("<!-- end ddp -->\nafter\n")
        assert "old" not in text
        assert text.count("| w\\|x | 1.00 us | 2.00 us | 2.00 | a &gt;= 1 | yes | Gloo |") == 1
    page.write_text("no markers")
    with pytest.raises(BenchError, match="must hold"):
        docs.update_page("ddp", report, None)
