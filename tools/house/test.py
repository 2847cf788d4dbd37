# SPDX-License-Identifier: Apache-2.0
"""The tests behind `./run test [TIER...]`: stages one after the other, all of them even when one
fails, minutes for each, and at the end one line with what was counted."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import static_checks
from counting import ROOT, STATE, Count, check, run, say, with_reports

MINUTE = 60.0
PYTHON = sys.executable
REPORTS = STATE / "reports"
TESTS = "tests/python"
# pytest's folders that are stages of their own
ELSEWHERE = (f"{TESTS}/fault", f"{TESTS}/long", static_checks.TREE_TESTS)


def ctest(preset: str, env: dict[str, str], limit_s: float) -> Count:
    """The C++ tests as one preset builds them."""
    if not (ROOT / "build" / preset / "build.ninja").exists():
        configured = check(f"configure {preset}", ["cmake", "--preset", preset])
        if configured.failed:
            return configured
    built = check(f"build {preset}", ["ninja", "--quiet", "-C", f"build/{preset}"], 20 * MINUTE)
    if built.failed:
        return built
    reports = REPORTS / preset
    reports.mkdir(parents=True, exist_ok=True)
    # A sanitizer of g++ 12 wants the address space as it was before it was randomised further.
    command = ["setarch", "-R", "ctest", "--preset", preset, "--no-tests=error"]
    return with_reports(command, reports, limit_s, {"GTEST_OUTPUT": f"xml:{reports}/", **env})


def cpp() -> Count:
    return ctest("release", {}, 10 * MINUTE)


def asan() -> Count:
    options = "detect_stack_use_after_return=1:strict_string_checks=1:halt_on_error=1"
    return ctest(
        "asan",
        {"ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"},
        15 * MINUTE,
    )


def tsan() -> Count:
    return ctest("tsan", {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}, 15 * MINUTE)


def pytest(name: str, *arguments: str, limit_s: float) -> Count:
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / f"{name}.xml"
    command = [PYTHON, "-m", "pytest", "-q", f"--junit-xml={report}", *arguments]
    return with_reports(command, report, limit_s)


def smoke() -> Count:
    tests = [f"{TESTS}/smoke", f"{TESTS}/test_options.py"]
    return pytest("smoke", "-m", "not long", *tests, limit_s=10 * MINUTE)


def python() -> Count:
    ignored = [f"--ignore={folder}" for folder in ELSEWHERE]
    return pytest("python", "-m", "not long", *ignored, TESTS, limit_s=30 * MINUTE)


def fault() -> Count:
    """200 kills in the engine's phases, then what a training script meets."""
    program = "build/release/tests/cpp/hfreduce_kills_test"
    report = REPORTS / "kills.xml"
    REPORTS.mkdir(parents=True, exist_ok=True)
    env = {"HFREDUCE_TEST_KILLS": "200", "GTEST_OUTPUT": f"xml:{report}"}
    count = with_reports([program], report, 10 * MINUTE, env)
    count += pytest("fault", "-m", "not long", f"{TESTS}/fault", limit_s=15 * MINUTE)
    return count


def fuzz() -> Count:
    """Each fuzz target for a moment, from its corpus; what it finds stays in .state/fuzz."""
    count = check("configure fuzz", ["cmake", "--preset", "fuzz"])
    if count.failed == 0:
        build = ["ninja", "--quiet", "-C", "build/fuzz", "fuzzers"]
        count += check("build fuzz", build, 20 * MINUTE)
    if count.failed:
        return count
    seconds = os.environ.get("HFREDUCE_FUZZ_SECONDS", "10")
    for program in sorted((ROOT / "build/fuzz/tests/fuzz").glob("fuzz_*")):
        target = program.name.removeprefix("fuzz_")
        if not program.is_file() or target == "replay_test":
            continue
        found = STATE / "fuzz" / target
        found.mkdir(parents=True, exist_ok=True)
        command = [str(program), f"-max_total_time={seconds}", f"-artifact_prefix={found}/"]
        command += ["-verbosity=0", str(found), f"tests/fuzz/corpus/{target}"]
        count += check(program.name, command, float(seconds) + 120)
    return count


def torch_suite() -> Count:
    """torch's own distributed tests, counted as their runner judges them. What its exit code says
    and the rows do not counts as one failure."""
    rows_file = REPORTS / "suite.json"
    REPORTS.mkdir(parents=True, exist_ok=True)
    rows_file.unlink(missing_ok=True)
    code = run([PYTHON, f"{TESTS}/suite/run.py", "--json", str(rows_file)], 30 * MINUTE)
    count = Count()
    if rows_file.exists():
        for rows in json.loads(rows_file.read_text()).values():
            for row in rows.values():
                count += Count(**{row["verdict"]: 1})
    if count.failed == 0 and (code != 0 or count.passed == 0):
        count.failed = 1
    return count


def demo() -> Count:
    return check("demo", [PYTHON, "examples/demo.py", "--quick"], 10 * MINUTE)


def compat() -> Count:
    return check("compat", [PYTHON, "tools/house/compat.py"], 60 * MINUTE)


def long_python() -> Count:
    return pytest("long", "-m", "long", TESTS, limit_s=240 * MINUTE)


STAGES: dict[str, Callable[[], Count]] = {
    "static": static_checks.run_all,
    "tidy": static_checks.run_tidy,
    "cpp": cpp,
    "asan": asan,
    "tsan": tsan,
    "smoke": smoke,
    "python": python,
    "suite": torch_suite,
    "fault": fault,
    "fuzz": fuzz,
    "demo": demo,
    "compat": compat,
    "long": long_python,
}
TIERS = {
    # Stages join `all` once they have passed from a fresh clone within its hour.
    "all": ["static", "cpp", "smoke"],
    "full": ["static", "tidy", "cpp", "asan", "tsan", "python", "suite", "fault", "fuzz", "demo"],
    "quick": ["static", "cpp", "smoke"],
    "static": ["static", "tidy"],
    "cpp": ["cpp", "asan", "tsan"],
    "python": ["python"],
    "suite": ["suite"],
    "fault": ["fault", "fuzz"],
    "compat": ["compat"],
    "long": ["long"],
}


def main(tiers: list[str]) -> int:
    for tier in tiers:
        if tier not in TIERS:
            print(f"no tier {tier!r}; there are: {', '.join(TIERS)}", file=sys.stderr)
            return 2
    stages = list(dict.fromkeys(stage for tier in tiers or ["all"] for stage in TIERS[tier]))
    minutes = {}
    if started := os.environ.get("HOUSE_STARTED"):
        minutes["setup"] = (time.time() - float(started)) / MINUTE
    counts = {}
    for stage in stages:
        say(f"stage {stage}")
        start = time.monotonic()
        try:
            counts[stage] = STAGES[stage]()
        except Exception as error:  # noqa: BLE001 - the other stages are to run all the same
            say(f"stage {stage} could not run: {type(error).__name__}: {error}")
            counts[stage] = Count(failed=1)
        minutes[stage] = (time.monotonic() - start) / MINUTE
    print()
    total = Count()
    for stage, spent in minutes.items():
        print(f"{stage:12} {spent:6.1f} min   {counts.get(stage, 'done')}")
        total += counts.get(stage, Count())
    print(f"{'together':12} {sum(minutes.values()):6.1f} min")
    print(total, flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
