# SPDX-License-Identifier: Apache-2.0
"""The judge of torch's suite must not let a test pass on another engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import report
from views import VIEWS


def row(**changes: Any) -> dict[str, Any]:
    good = {
        "outcome": "pass",
        "reason": "",
        "ranks": 3,
        "calls": 9,
        "monitored_barriers": 0,
        "gloo": 0,
        "operations": 9,
    }
    return {**good, **changes}


def judged(view: str = "name", test: str = "test_all_reduce_sum", **changes: Any) -> list[str]:
    return report.problems({(view, 3): {test: row(**changes)}})


def test_a_good_run_has_no_problems() -> None:
    assert judged() == []
    assert judged(calls=0, operations=0) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outcome": "fail", "reason": "boom"}, "boom"),
        ({"outcome": "skip", "reason": "no such thing"}, "no such thing"),
        ({"operations": 0}, "our engine did nothing"),
        ({"gloo": 1}, "Gloo groups"),
        ({"ranks": 2}, "only 2 ranks"),
    ],
)
def test_each_shortcoming_is_a_problem(changes: dict[str, Any], words: str) -> None:
    (problem,) = judged(**changes)
    assert words in problem


def test_only_the_listed_failure_is_allowed_and_only_for_its_reason() -> None:
    test = "test_ddp_logging_data_cpu"
    failure = {"outcome": "fail", "reason": "AssertionError: 'custom' != 'hfreduce'"}
    assert judged(test=test, **failure) == []
    assert judged(view="name-alltoall", test=test, **failure) != []
    assert judged(test="test_all_reduce_sum", **failure) != []
    assert judged(test=test, outcome="fail", reason="Connection closed by peer") != []


def test_a_refusal_for_size_counts_unless_a_larger_world_took_the_test() -> None:
    test = "test_all_to_all_group"
    refused = {test: row(outcome="skip", reason="Skipped due to small world size.")}
    runs = {
        ("name-alltoall", 3): refused,
        ("name-alltoall", 4): refused,
        ("name-alltoall", 8): {test: row(ranks=8)},
    }
    assert report.problems(runs) == []
    assert report.verdict(runs, "name-alltoall", 4, test) == "skipped"
    assert report.verdict(runs, "name-alltoall", 8, test) == "passed"
    (problem,) = report.problems({("name-alltoall", 3): refused})
    assert "small world size" in problem
    runs["name-alltoall", 4] = {test: row(outcome="fail", reason="boom")}
    assert report.verdict(runs, "name-alltoall", 4, test) == "failed"


def test_what_is_expected_follows_from_gloo() -> None:
    baseline = {
        "test_a": row(),
        "test_b": row(outcome="skip", reason="Skipped due to small world size."),
        "test_c": row(outcome="skip", reason="Only MPI supports all_to_all"),
    }
    assert report.expected(VIEWS["name"], baseline) == ["test_a"]
    assert report.expected(VIEWS["as-gloo"], baseline) == ["test_a"]
    assert report.expected(VIEWS["as-mpi"], baseline) == ["test_c"]
    no_gpu = {"test_d": row(outcome="skip", reason="Need at least 2 accelerator devices")}
    assert report.worth_trying({**baseline, **no_gpu}) == ["test_a", "test_b", "test_c"]


def test_a_probe_that_does_not_see_gloo_is_a_problem() -> None:
    assert report.blind({3: {"test_a": row(gloo=3)}}) == []
    (problem,) = report.blind({3: {"test_a": row(gloo=0)}})
    assert "no Gloo group was seen" in problem
