# SPDX-License-Identifier: Apache-2.0
"""The rules that the tree keeps: arrows point down, every source names its licence."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[3]

# The floors of csrc/, lowest first. A file includes from its own floor or from one below, and of
# two folders that share a floor neither includes from the other.
FLOORS = {"base": 1, "runtime": 2, "net": 3, "hfreduce": 5, "bindings": 8}
# What people may include, torch or no torch: the standard library and one another only.
PUBLIC = ["base/status.h", *(f"hfreduce/{name}.h" for name in ("communicator", "options", "store"))]
LICENCE = "SPDX-License-Identifier: Apache-2.0"
COMMENTED = {".cc", ".cpp", ".h", ".c", ".py", ".pyi", ".sh", ".toml", ".cu"}
COMMENTED_NAMES = {"CMakeLists.txt", ".clang-format", ".clang-tidy", "run"}
MAX_LINES = 600


def committed(*patterns: str) -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=TREE,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return [TREE / name for name in sorted(set(names)) if (TREE / name).is_file()]


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', path.read_text(), re.MULTILINE)


def upward_arrows(path: str, included: list[str]) -> list[str]:
    """The includes of the file `path` (below csrc/) that the floors forbid."""
    own = path.split("/")[0]
    wrong = []
    for target in included:
        other = target.split("/")[0]
        if "/" in target and other in FLOORS and other != own and FLOORS[other] >= FLOORS[own]:
            wrong.append(target)
    return wrong


def test_an_upward_arrow_is_noticed() -> None:
    assert upward_arrows("net/socket.h", ["hfreduce/options.h"]) == ["hfreduce/options.h"]
    assert upward_arrows("base/log.cc", ["net/socket.h"]) == ["net/socket.h"]
    assert upward_arrows("net/socket.h", ["base/status.h", "net/address.h", "sys/uio.h"]) == []


def test_arrows_point_down() -> None:
    files = committed("csrc/*.cc", "csrc/*.h")
    assert len(files) > 20
    wrong = []
    for path in files:
        name = str(path.relative_to(TREE / "csrc"))
        assert name.split("/")[0] in FLOORS, f"{name} is on no floor"
        wrong += [f"{name} includes {target}" for target in upward_arrows(name, includes(path))]
    assert wrong == []


def test_only_the_adapter_includes_torch() -> None:
    torch = ("torch/", "ATen/", "c10/", "pybind11/", "Python.h")
    wrong = [
        f"{path.relative_to(TREE)} includes {target}"
        for path in committed("csrc/*.cc", "csrc/*.h", "benchmarks/cpp/*", "examples/*.cc")
        for target in includes(path)
        if target.startswith(torch) and "csrc/bindings/torch" not in str(path)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", PUBLIC)
def test_public_headers_stand_alone(name: str) -> None:
    """Whoever compiles against them needs neither our inner headers nor another library."""
    for target in includes(TREE / "csrc" / name):
        if "/" in target:
            assert target == "base/status.h" or re.fullmatch(r"hfreduce/\w+\.h", target), target


def test_every_source_names_its_licence() -> None:
    files = [
        path for path in committed() if path.suffix in COMMENTED or path.name in COMMENTED_NAMES
    ]
    assert len(files) > 50
    wrong = []
    for path in files:
        lines = path.read_text().splitlines()
        if lines and not any(LICENCE in line for line in lines[:2]):  # the second, below a #!
            wrong.append(str(path.relative_to(TREE)))
    assert wrong == []


def test_files_are_short() -> None:
    long = {
        str(path.relative_to(TREE)): lines
        for path in committed("csrc/*", "hfreduce/*", "tools/*", "run")
        if (lines := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert long == {}
