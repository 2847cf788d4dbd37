# SPDX-License-Identifier: Apache-2.0
"""Judges runs of torch's suite and writes the page that lists them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from views import ALLOWED, VIEWS, View

Rows = dict[str, dict[str, Any]]  # by test
Results = dict[tuple[str, int], Rows]  # by view and world size

_MPI_ONLY = "Only MPI supports"  # how the suite words the gate of its all-to-all tests


def refused_for_size(row: dict[str, Any]) -> bool:
    """Whether a test was skipped because the world was too small, odd, or not of its size."""
    reason = row["reason"].lower().replace(" ", "")
    return row["outcome"] == "skip" and "worldsize" in reason


def expected(view: View, baseline: Rows) -> list[str]:
    """The tests that `view` must pass in a world where Gloo's outcomes are `baseline`."""
    if view.gate == "mpi":  # Gloo cannot run these
        return [test for test, row in baseline.items() if row["reason"].startswith(_MPI_ONLY)]
    return [test for test, row in baseline.items() if row["outcome"] == "pass"]


def worth_trying(smallest: Rows) -> list[str]:
    """The tests that are run over Gloo in a larger world, when `smallest` is what became of them in
    the smallest: the reasons of the others (no GPU, an open bug) have nothing to do with sizes."""
    return [
        test
        for test, row in smallest.items()
        if row["outcome"] == "pass" or refused_for_size(row) or row["reason"].startswith(_MPI_ONLY)
    ]


def blind(baseline: dict[int, Rows]) -> list[str]:
    """Tests that passed over Gloo without a Gloo group being seen: had there been one beside our
    engine, it would not have been seen either."""
    return [
        f"gloo, world size {world}, {test}: passed, but no Gloo group was seen"
        for world, rows in baseline.items()
        for test, row in rows.items()
        if row["outcome"] == "pass" and row["gloo"] == 0
    ]


def problems(results: Results) -> list[str]:
    """What is wrong with our runs, a line each; empty when all is well."""
    return [
        f"{view}, world size {world}, {test}: {problem}"
        for (view, world), rows in results.items()
        for test, row in rows.items()
        for problem in shortcomings(results, view, world, test)
    ]


def shortcomings(results: Results, view: str, world: int, test: str) -> list[str]:
    row = results[view, world][test]
    if row["outcome"] != "pass":
        if is_allowed(view, test, row) or is_too_small(results, view, world, test):
            return []
        return [f"{row['outcome']}: {last_words(row['reason'])}"]
    found = []
    if row["ranks"] < world:
        found.append(f"passed, but only {row['ranks']} ranks left a record")
    if row["gloo"] > 0:
        found.append(f"passed, but {row['gloo']} Gloo groups were made")
    if row["calls"] > 0 and row["operations"] == 0:
        found.append(f"passed with {row['calls']} calls, but our engine did nothing")
    return found


def verdict(results: Results, view: str, world: int, test: str) -> str:
    """What a run counts as: passed, failed, or skipped."""
    if shortcomings(results, view, world, test):
        return "failed"
    return "passed" if results[view, world][test]["outcome"] == "pass" else "skipped"


def last_words(reason: str) -> str:
    """The line of a traceback that says what went wrong."""
    lines = [line for line in reason.strip().splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line and not line.startswith(" ")]
    return (telling or lines or ["no reason given"])[-1][:300]


def is_too_small(results: Results, view: str, world: int, test: str) -> bool:
    """Whether the suite refused `test` for the size of the world, and a larger one passed it."""
    return refused_for_size(results[view, world][test]) and any(
        name == view and size > world and rows.get(test, {}).get("outcome") == "pass"
        for (name, size), rows in results.items()
    )


def is_allowed(view: str, test: str, row: dict[str, Any]) -> bool:
    if (view, test) not in ALLOWED:
        return False
    _, words = ALLOWED[view, test]
    return row["outcome"] == "fail" and words in row["reason"]


def publish(doc: Path, baseline: dict[int, Rows], results: Results, write: bool) -> list[str]:
    """Writes the page, or checks that it is the one that this run would write."""
    text = page(baseline, results)
    if write:
        doc.write_text(text)
        print(f"wrote {doc}")
        return []
    import torch

    if torch.accelerator.is_available() or f"torch {torch.__version__}" not in doc.read_text():
        print(f"{doc.name} was written for another torch or machine: not compared")
        return []
    if doc.read_text() == text:
        return []
    return [f"{doc.name} is out of date: run tests/python/suite/run.py --write"]


def page(baseline: dict[int, Rows], results: Results) -> str:
    import torch

    lines = [
        "<!-- Generated by tests/python/suite/run.py --write. Do not edit. -->",
        "# torch's own suite over hfreduce",
        "",
        "`torch/testing/_internal/distributed/distributed_test.py` as the wheel of",
        f"torch {torch.__version__} brings it, on a machine without a GPU. A test is run when Gloo",
        "passes it in the same environment and the same world size; so are the all-to-all tests,",
        "which the suite keeps for MPI. No test may make a Gloo group, and one that communicates",
        "must have been served by our engine: its counter of finished operations moved. Under",
        "`TORCH_DISTRIBUTED_DEBUG=DETAIL` torch wraps every backend in a checker, for whose calls",
        "it makes a Gloo group; here the checker gets a group of ours.",
        "",
        "Run it with `./run test suite`.",
        "",
        "| view | world size | tests | passed | of them communicating | allowed failures |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (view, world), rows in results.items():
        passed = [row for row in rows.values() if row["outcome"] == "pass"]
        talking = sum(row["calls"] > 0 for row in passed)
        refused = sum(refused_for_size(row) for row in rows.values())
        allowed = sum(is_allowed(view, test, row) for test, row in rows.items())
        lines.append(
            f"| {VIEWS[view].title} | {world} | {len(rows) - refused} | {len(passed)} | {talking} "
            f"| {allowed} |"
        )
    lines.append("")
    lines += _allowed_section(results)
    lines += _monitored_section(results)
    lines += _run_section(results)
    lines += _not_applicable_section(baseline, results)
    return "\n".join(lines).rstrip() + "\n"


def _allowed_section(results: Results) -> list[str]:
    lines = []
    for (view, test), (why, _) in ALLOWED.items():
        if any(
            name == view and test in rows and is_allowed(view, test, rows[test])
            for (name, _), rows in results.items()
        ):
            lines.append(f"- `{test}`, {VIEWS[view].title}: {why}.")
    return ["## Allowed failures", "", *lines, ""] if lines else []


def _monitored_section(results: Results) -> list[str]:
    tests = sorted(
        {
            test
            for rows in results.values()
            for test, row in rows.items()
            if row["monitored_barriers"] > 0 and row["operations"] == 0
        }
    )
    if not tests:
        return []
    return [
        "## Communicating through the store alone",
        "",
        "Here ranks stay away from a monitored barrier on purpose. Our backend finds out who is",
        "missing through the store, so that the group stays whole; nothing is left for the engine.",
        "",
        *(f"- `{test}`" for test in tests),
        "",
    ]


def _run_section(results: Results) -> list[str]:
    where: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (view, world), rows in results.items():
        for test, row in rows.items():
            if not refused_for_size(row):
                where[test][view].append(world)
    lines = ["## Run", "", "| test | views and world sizes |", "| --- | --- |"]
    for test in sorted(where):
        views = "; ".join(
            f"{view} ({', '.join(str(world) for world in worlds)})"
            for view, worlds in where[test].items()
        )
        lines.append(f"| `{test}` | {views} |")
    return [*lines, ""]


def _not_applicable_section(baseline: dict[int, Rows], results: Results) -> list[str]:
    ran = {test for rows in results.values() for test in rows}
    reasons: dict[str, list[str]] = defaultdict(list)
    for test in baseline[min(baseline)]:
        if test in ran:
            continue
        # A test may be refused for its size first and for another reason in a larger world.
        last = [rows[test] for _, rows in sorted(baseline.items()) if test in rows][-1]
        reason = last["reason"].strip().splitlines()[-1] if last["reason"] else last["outcome"]
        reasons[reason].append(test)
    lines = [
        "## Not applicable",
        "",
        "Tests that Gloo does not pass here either, with the reason that the suite gives.",
        "",
    ]
    for reason in sorted(reasons):
        tests = ", ".join(f"`{test}`" for test in sorted(reasons[reason]))
        lines.append(f"- {reason} ({len(reasons[reason])}): {tests}")
    return [*lines, ""]
