# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

import pytest

from hfreduce import doctor
from hfreduce.doctor import Facts


def facts(**changes: Any) -> Facts:
    plain = Facts(
        rank=0,
        host="a7",
        pid=4711,
        boot="one",
        user=1000,
        network="net:[1]",
        cores=64,
        threads="1",
        descriptors=1 << 20,
        locked_kb=-1,
        memory=64 << 30,
        shm_bytes=32 << 30,
        isa="avx512",
        interfaces=["eth0 10.0.0.2"],
        variables={},
        versions="torch 2.15.0, Python 3.11.7",
    )
    return dataclasses.replace(plain, **changes)


def texts(*everyone: Facts) -> str:
    return "\n".join(str(finding) for finding in doctor.findings(everyone))


def test_a_good_place_has_no_findings() -> None:
    assert texts(facts(), facts(rank=1)) == ""


@pytest.mark.parametrize(
    ("changes", "text", "cure"),
    [
        ({"descriptors": 256}, "256 files and sockets", "ulimit -n 1024"),
        ({"memory": 1 << 30}, "1024 MiB of memory", "HFREDUCE_ARENA_BYTES"),
        ({"isa": "portable"}, "without SIMD", "AVX2"),
        (
            {"isa": "portable", "variables": {"HFREDUCE_ISA": "portable"}},
            "without SIMD",
            "unset HFREDUCE_ISA",
        ),
        (
            {"variables": {"HFREDUCE_SOCKET_IF": "eth0"}},
            "HFREDUCE_SOCKET_IF is set, but",
            "HFREDUCE_SOCKET_IFNAME",
        ),
        ({"cores": 1}, "2 ranks share 1 cores", "fewer"),
        ({"threads": ""}, "64 threads in each of 2 ranks", "OMP_NUM_THREADS=32"),
    ],
)
def test_findings(changes: dict[str, Any], text: str, cure: str) -> None:
    found = texts(facts(**changes), facts(rank=1))
    assert text in found
    assert cure in found


def test_descriptors_grow_with_the_job() -> None:
    ranks = [facts(rank=rank, boot=str(rank), descriptors=1024) for rank in range(512)]
    assert "ulimit -n 8192" in texts(*ranks)


def test_a_host_is_named_once() -> None:
    assert texts(*[facts(rank=rank, descriptors=10) for rank in range(8)]).count("a7") == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"boot": "two"}, "different machines"),
        ({"variables": {"HFREDUCE_NODE": "b"}}, "HFREDUCE_NODE is '' and 'b'"),
        ({"variables": {"HFREDUCE_SHM": "0"}}, "HFREDUCE_SHM is 0"),
        ({"network": "net:[2]"}, "network namespaces"),
        ({"user": 0}, "1000 and 0"),
        ({}, "HFREDUCE_DEBUG=info"),
    ],
)
def test_why_ranks_do_not_share_a_node(changes: dict[str, Any], words: str) -> None:
    assert words in doctor.why_apart(facts(), facts(**changes))


def run_doctor(**env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "RANK"}
    return subprocess.run(
        [sys.executable, "-m", "hfreduce.doctor"],
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_on_this_machine() -> None:
    done = run_doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all-reduce of 1 MiB over 2 ranks" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.lstrip()[:1].isdigit()]
    assert [(row[0], row[1], row[-1]) for row in rows] == [("0", "0", "self"), ("1", "0", "shm")]


def test_without_shared_memory() -> None:
    done = run_doctor(HFREDUCE_SHM="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ranks 0 and 1 do not share a node: HFREDUCE_SHM is 0" in done.stdout


def test_what_does_not_work_is_said() -> None:
    done = run_doctor(HFREDUCE_ALGO="ring")
    assert done.returncode == 1
    assert "HFREDUCE_ALGO=ring" in done.stdout
    assert "Traceback" not in done.stderr
