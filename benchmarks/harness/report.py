# SPDX-License-Identifier: Apache-2.0
"""Prints rows, writes the JSON file."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

from .cases import METRIC_NAMES, Case
from .rounds import Samples
from .targets import Row

MARKS = {True: "met", False: "MISSED", None: "not measured"}


def format_us(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 1e5:
        return f"{value / 1e3:.0f} ms"
    if value >= 1e3:
        return f"{value / 1e3:.2f} ms"
    return f"{value:.1f} us" if value >= 10 else f"{value:.2f} us"


def print_rows(rows: list[Row]) -> None:
    if not rows:
        return
    width = max(len(row.work) for row in rows)
    print(f"\n{'work':<{width}} {'ours':>10} {'theirs':>10} {'ratio':>7}  target, peer")
    for row in rows:
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        print(
            f"{row.work:<{width}} {format_us(row.ours):>10} {format_us(row.theirs):>10} {ratio:>7}"
            f"  {row.target}: {MARKS[row.met]} ({row.peer})"
        )
    count = {mark: sum(row.met is mark for row in rows) for mark in MARKS}
    print(f"\n{count[True]} met, {count[False]} missed, {count[None]} not measured")


def print_measurements(samples: Samples) -> None:
    """Everything that was measured: median over the rounds, and the least and greatest round."""
    names = {key: samples.labels[key[0]] + ", " + key[1].describe() for key in samples.rounds}
    width = max((len(name) for name in names.values()), default=0)
    head = "".join(f"{METRIC_NAMES[m]:>14}" for m in METRIC_NAMES)
    print(f"\n{'measured (median of rounds)':<{width}}{head}   median's least..greatest round")
    for key in sorted(samples.rounds, key=lambda key: (key[1], key[0])):
        values = [format_us(samples.median(*key, metric)) for metric in METRIC_NAMES]
        rounds = samples.values(*key, "median_us")
        spread = f"{format_us(min(rounds))}..{format_us(max(rounds))}"
        print(f"{names[key]:<{width}}{''.join(f'{value:>14}' for value in values)}   {spread}")


def not_measured(samples: Samples) -> list[dict[str, str]]:
    """Which contender failed at which work, and why."""
    reasons: dict[tuple[str, str], list[Case]] = {}
    for (key, case), reason in samples.failures.items():
        reasons.setdefault((key, reason), []).append(case)
    result = []
    for (key, reason), cases in reasons.items():
        work = cases[0].describe() + (f" and {len(cases) - 1} more" if len(cases) > 1 else "")
        result.append({"contender": samples.labels[key], "work": work, "reason": reason})
    return result


def print_not_measured(samples: Samples) -> None:
    for entry in not_measured(samples):
        print(f"not measured: {entry['contender']}, {entry['work']}: {entry['reason']}")


def measurements(samples: Samples) -> list[dict[str, Any]]:
    result = []
    for (contender, case), rounds in sorted(
        samples.rounds.items(), key=lambda item: (item[0][1], item[0][0])
    ):
        entry: dict[str, Any] = {
            "contender": samples.labels[contender],
            "key": contender,
            **dataclasses.asdict(case),
        }
        for metric in METRIC_NAMES:
            values = [measure.get(metric) for measure in rounds]
            entry[metric] = {
                "median": round(statistics.median(values), 3),
                "min": round(min(values), 3),
                "max": round(max(values), 3),
                "rounds": [round(value, 3) for value in values],
            }
        result.append(entry)
    return result


def write_json(path: Path, report: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
