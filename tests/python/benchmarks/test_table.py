# SPDX-License-Identifier: Apache-2.0
"""python -m hfreduce.bench: the table, its arithmetic and its exit code."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hfreduce import bench

ROOT = Path(__file__).resolve().parents[3]


def run_table(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hfreduce.bench", "--backend", "gloo", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=180,
    )


def test_every_operation_is_right_and_counted() -> None:
    done = run_table("--op", "all", "--min", "1K", "--max=1K", "--dtype", "float32,bfloat16",
                     "--iters", "2", "--ranks", "3")  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")][2:]
    assert [(row[2], row[3]) for row in rows] == [
        (dtype, op) for op in bench.OPERATIONS for dtype in ("float32", "bfloat16")
    ]
    for size, count, dtype, op, micros, algbw, busbw, wrong in rows:
        bytes_ = int(size)
        assert bytes_ == int(count) * getattr(torch, dtype).itemsize
        assert 1024 - 12 < bytes_ <= 1024
        assert wrong == "0"
        # Columns agree within their printed digits.
        expected = bytes_ / float(micros) / 1e3
        assert float(algbw) == pytest.approx(expected, abs=0.0006)
        share = {"allreduce": 4 / 3, "broadcast": 1.0, "reduce": 1.0}.get(op, 2 / 3)
        assert float(busbw) == pytest.approx(expected * share, abs=0.0006)


def test_wrong_elements_are_seen() -> None:
    data = torch.arange(4.0)
    work = bench.Work(lambda: data.add_(torch.tensor([0, 0, 1, 1])), data, data,
                      lambda: torch.arange(4.0))  # fmt: skip
    assert bench.count_wrong(work) == 2


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8), ("64K", 65536), ("1KiB", 1024), ("2MB", 2 << 20), ("1g", 1 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert bench.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "1T"])
def test_bad_sizes_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size"):
        bench.parse_size(text)


@pytest.mark.parametrize(
    "arguments", [["--op", "allsum"], ["--dtype", "fp8"], ["--factor", "1"], ["--min", "2M",
                                                                            "--max", "1M"]]
)  # fmt: skip
def test_bad_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        bench.parse_arguments(arguments)
