# SPDX-License-Identifier: Apache-2.0
"""Draws what a benchmark measured, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cases import Case, format_size
from .rounds import Samples
from .state import say

OURS_COLOUR = "#c0392b"
COLOURS = {
    "hfreduce": OURS_COLOUR,
    "gloo": "#2c7fb8",
    "openmpi": "#7fbf7b",
    "mpich": "#998ec3",
    "intelmpi": "#f1a340",
    "memcpy": "#888888",
    "ring": "#888888",
    "bound": "#bbbbbb",
    "noop": "#888888",
}


def sized(case: Case) -> str:
    return f"{case.op} {case.dtype} {format_size(case.size)}"


@dataclass(frozen=True)
class Panel:
    title: str
    accept: Callable[[Case], bool]  # which cases it shows
    name: Callable[[Case], str] = sized  # of the group of bars that a case belongs to


def _pyplot() -> Any | None:
    try:
        import matplotlib
    except ImportError:
        say("no plot: matplotlib is not installed (pip install matplotlib)")
        return None
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fireflyer"  # the same data gives the same file
    import matplotlib.pyplot as plt

    return plt


def curves(path: Path, samples: Samples, panels: Sequence[Panel], metric: str) -> Path | None:
    """Time against size, both logarithmic."""
    plt = _pyplot()
    if plt is None:
        return None
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.2), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        lines: dict[str, list[Case]] = {}
        for contender, case in samples.rounds:
            if panel.accept(case):
                lines.setdefault(contender, []).append(case)
        for contender, cases in sorted(lines.items()):
            cases.sort(key=lambda case: case.size)
            values = [samples.values(contender, case, metric) for case in cases]
            middle = [samples.median(contender, case, metric) for case in cases]
            sizes = [case.size for case in cases]
            colour = COLOURS.get(contender)
            axis.fill_between(
                sizes, [min(v) for v in values], [max(v) for v in values], alpha=0.15, color=colour
            )
            axis.plot(sizes, middle, "o-", ms=3, label=samples.labels[contender], color=colour)
        axis.set(xscale="log", yscale="log", title=panel.title, xlabel="bytes", ylabel="µs")
        axis.grid(alpha=0.3)
        if lines:
            axis.legend(fontsize=8)
    return _save(plt, figure, path)


def bars(path: Path, samples: Samples, panels: Sequence[Panel], metric: str) -> Path | None:
    """Grouped bars of time, logarithmic."""
    plt = _pyplot()
    if plt is None:
        return None
    figure, axes = plt.subplots(1, len(panels), figsize=(5.6 * len(panels), 4.2), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        keys = [key for key in samples.rounds if panel.accept(key[1])]
        groups = list(
            dict.fromkeys(panel.name(case) for _, case in sorted(keys, key=lambda k: k[1]))
        )
        contenders = [c for c in COLOURS if any(key[0] == c for key in keys)]
        width = 0.8 / max(1, len(contenders))
        for index, contender in enumerate(contenders):
            for key in keys:
                if key[0] != contender:
                    continue
                values = samples.values(*key, metric)
                middle = samples.median(*key, metric) or 0.0
                spread = [[middle - min(values)], [max(values) - middle]]
                x = groups.index(panel.name(key[1])) + (index - (len(contenders) - 1) / 2) * width
                axis.bar(
                    x, middle, width, yerr=spread, color=COLOURS[contender], error_kw={"lw": 1}
                )
        axis.set_xticks(range(len(groups)), groups, rotation=30, ha="right", fontsize=8)
        axis.set(title=panel.title, ylabel="µs", yscale="log")
        axis.grid(alpha=0.3, axis="y")
        handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[c]) for c in contenders]
        axis.legend(handles, [samples.labels[c] for c in contenders], fontsize=8)
    return _save(plt, figure, path)


def _save(plt: Any, figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path
