# SPDX-License-Identifier: Apache-2.0
"""The training script and the demo, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TREE / "examples"))

import demo

BACKEND = os.environ.get("HFREDUCE_TEST_BACKEND", "hfreduce")


def train(
    folder: Path, name: str, *options: str, ranks: int = 1, backend: str = BACKEND
) -> dict[str, Any]:
    summary = folder / f"{name}.json"
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [str(TREE / "examples/train_gpt.py"), "--size", "tiny", "--batch", "2"]
    command += ["--sample", "0", "--backend", backend, "--summary", str(summary), *options]
    run = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    result: dict[str, Any] = json.loads(summary.read_text())
    return result


def test_a_resumed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    checkpoint = ["--checkpoint", str(tmp_path / "checkpoint.pt")]
    whole = train(tmp_path, "whole", "--steps", "12")
    first = train(tmp_path, "first", "--steps", "12", "--stop-at", "7", *checkpoint)
    rest = train(tmp_path, "rest", "--steps", "12", "--resume", *checkpoint)
    assert rest["first_step"] == 7
    assert first["losses"] + rest["losses"] == whole["losses"]
    assert whole["losses"][-1] < whole["losses"][0] - 0.3


def test_under_torchrun_with_the_default_backend(tmp_path: Path) -> None:
    ours = train(tmp_path, "ours", "--steps", "6", ranks=2)
    gloo = train(tmp_path, "gloo", "--steps", "6", ranks=2, backend="gloo")
    assert ours["ranks"] == 2
    assert ours["losses"] == pytest.approx(gloo["losses"], abs=1e-5)
    if BACKEND == "hfreduce":
        assert ours["engine_operations"] > 6


@pytest.mark.skipif(BACKEND != "hfreduce", reason="the demo runs hfreduce")
@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_quick_demo(options: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, str(TREE / "examples/demo.py"), "--quick", *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-3000:]
    assert "x the speed of Gloo" in run.stdout
    assert "operations on rank 0" in run.stdout


def runs(ours: dict[str, Any]) -> dict[str, dict[str, Any]]:
    good = {"losses": [5.0, 4.0, 3.0], "engine_operations": 12}
    return {demo.OURS: {**good, **ours}, demo.PEER: good}


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ({"losses": [5.0, 4.0 + 2 * demo.LOSS_BOUND, 3.0]}, "step 2"),
        ({"losses": [5.0, 4.0, float("nan")]}, "step 3"),
        ({"losses": [5.0, 4.0]}, "2 steps over hfreduce, 3 over Gloo"),
        ({"engine_operations": 0}, "finished no operation"),
    ],
)
def test_what_makes_the_demo_fail(ours: dict[str, Any], words: str) -> None:
    (line,) = demo.shortcomings(runs(ours))
    assert words in line


def test_a_good_demo() -> None:
    close = [5.0, 4.0 + demo.LOSS_BOUND / 2, 3.0]
    assert demo.shortcomings(runs({"losses": close})) == []
