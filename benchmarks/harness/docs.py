# SPDX-License-Identifier: Apache-2.0
"""Writes a result into docs/benchmarks.md, between the markers of its benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .cases import BenchError
from .report import format_us
from .state import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
FOLDER = ROOT / "docs" / "bench"
MARKS = {True: "yes", False: "**no**", None: "not measured"}


def update_page(bench: str, report: dict[str, Any], plot: Path | None) -> None:
    begin, end = f"<!-- begin {bench} -->", f"<!-- end {bench} -->"
    text = PAGE.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise BenchError(f"{PAGE} must hold {begin} and {end} once each")
    head, rest = text.split(begin)
    tail = rest.split(end)[1]
    PAGE.write_text(f"{head}{begin}\n{_section(report, plot)}{end}{tail}", encoding="utf-8")


def _section(report: dict[str, Any], plot: Path | None) -> str:
    machine = report["machine"]
    lines = [
        (
            f"Measured {machine['date']} on {machine['cores']} cores of {machine['cpu']} "
            f"({machine['simd']}), Linux {machine['kernel']}, torch {machine['torch']}; "
            f"{report['rounds']} rounds, {report['seconds'] / 60:.1f} min."
        ),
        "",
        "| work | ours | theirs | ratio | target | met | peer |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        cells = [row["work"], format_us(row["ours"]), format_us(row["theirs"]), ratio]
        cells += [row["target"].replace("<", "&lt;").replace(">", "&gt;")]
        cells += [MARKS[row["met"]], row["peer"]]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    for entry in report["not_measured"]:
        lines += ["", f"Not measured: {entry['contender']}, {entry['work']}: {entry['reason']}"]
    if plot is not None:
        lines += ["", f"![{report['bench']}](bench/{plot.name})"]
    return "\n".join(lines) + "\n"
