# SPDX-License-Identifier: Apache-2.0
"""The checks that run no product code: formatting, lint, types, structure, compilers' warnings."""

from __future__ import annotations

import subprocess
import sys

import memory
import tidy
from counting import ROOT, STATE, Count, check, say, with_reports
from units import adapter_unit

TREE_TESTS = "tests/python/house/test_tree.py"
PYTHON = [sys.executable, "-m"]


def run_all() -> Count:
    count = Count()
    cxx = sources("*.cc", "*.cpp", "*.c", "*.h")
    count += check("clang-format", ["clang-format", "--dry-run", "-Werror", *cxx])
    count += check("ruff", [*PYTHON, "ruff", "check", "--output-format=concise", "."])
    count += check("ruff format", [*PYTHON, "ruff", "format", "--check", "."])
    count += check("mypy", [*PYTHON, "mypy"])
    count += tree()
    # g++ with warnings as errors has had the tree already: it is how set-up builds build/release.
    count += adapter_warnings("g++")
    count += clang_warnings()
    count += adapter_warnings("clang++")
    return count


def run_tidy() -> Count:
    """clang-tidy, over what the clang build records."""
    count = clang_warnings()
    if not count.failed:
        count += tidy.run_all()
    return count


def sources(*patterns: str) -> list[str]:
    """Files that are committed, or could be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in set(names.splitlines()) if (ROOT / name).is_file())


def tree() -> Count:
    report = STATE / "reports" / "tree.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    command = [*PYTHON, "pytest", "-q", f"--junit-xml={report}", TREE_TESTS]
    return with_reports(command, report, 120)


def clang_warnings() -> Count:
    if not (ROOT / "build/clang/build.ninja").exists():
        configured = check("configure for clang", ["cmake", "--preset", "clang"])
        if configured.failed:
            return configured
    return check("clang -Werror", ["ninja", "--quiet", "-C", "build/clang"], 1200)


def adapter_warnings(compiler: str) -> Count:
    name = f"adapter with {compiler} -Werror"
    unit = adapter_unit(compiler)
    key = memory.key(["warnings", memory.version(compiler), *unit.command], unit.files)
    if memory.passed_before(key):
        say(f"{name}: passed before, unchanged")
        return Count(passed=1)
    count = check(name, [*unit.command, "-c", str(unit.source), "-o", "/dev/null"])
    if not count.failed:
        memory.remember(key)
    return count
