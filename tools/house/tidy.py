# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the product's translation units, those that changed since they last passed."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import memory
from counting import ROOT, Count, say
from units import Unit, adapter_unit, cmake_units

LIMIT_S = 900.0
HEADERS = f"{ROOT}/(csrc|benchmarks|examples)/.*"


def tidy(unit: Unit) -> str:
    """Empty when there is nothing to complain about."""
    command = ["clang-tidy", "--quiet", "--warnings-as-errors=*", f"--header-filter={HEADERS}"]
    command += [str(unit.source), "--", *unit.command[1:]]
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=LIMIT_S
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def run_all() -> Count:
    units = [*cmake_units(ROOT / "build/clang"), adapter_unit("clang++")]
    config = [ROOT / ".clang-tidy"]
    keys = {
        unit.name: memory.key(
            ["tidy", memory.version("clang-tidy"), *unit.command], config + unit.files
        )
        for unit in units
    }
    changed = [unit for unit in units if not memory.passed_before(keys[unit.name])]
    # The adapter takes longest, so it starts first.
    changed.sort(key=lambda unit: sum(file.stat().st_size for file in unit.files), reverse=True)
    say(f"clang-tidy: {len(changed)} of {len(units)} units to check")
    start = said = time.monotonic()
    complaints: set[str] = set()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done, (unit, output) in enumerate(zip(changed, pool.map(tidy, changed), strict=True)):
            if output:
                complaints.add(unit.name)
                print(f"--- {unit.name}\n{output}", flush=True)
            else:
                memory.remember(keys[unit.name])
            if time.monotonic() - said > 20:
                said = time.monotonic()
                say(f"clang-tidy: {done + 1} of {len(changed)}, {said - start:.0f} s")
    verdict = f"failed in {', '.join(sorted(complaints))}" if complaints else "passed"
    say(f"clang-tidy: {verdict} in {time.monotonic() - start:.0f} s")
    return Count(failed=1) if complaints else Count(passed=1)
