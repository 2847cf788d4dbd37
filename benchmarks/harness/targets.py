# SPDX-License-Identifier: Apache-2.0
"""Reads targets.toml, and holds what was measured against it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import tomllib

from .cases import METRIC_NAMES, BenchError, Case, parse_size
from .peers import MPI_KEYS
from .rounds import Samples
from .state import SOURCES

OURS = "hfreduce"


@dataclass(frozen=True)
class Target:
    case: Case
    peer: str
    metric: str
    bar: str  # at_most, at_least, plus_us
    value: float

    def describe(self) -> str:
        if self.bar == "at_most":
            return f"ours/theirs <= {self.value:g}"
        if self.bar == "at_least":
            return f"theirs/ours >= {self.value:g}"
        return f"ours <= theirs + {self.value:g} us"

    def ratio(self, ours: float, theirs: float) -> float:
        return theirs / ours if self.bar == "at_least" else ours / theirs

    def met(self, ours: float, theirs: float) -> bool:
        if self.bar == "plus_us":
            return ours <= theirs + self.value
        ratio = self.ratio(ours, theirs)
        return ratio >= self.value if self.bar == "at_least" else ratio <= self.value


@dataclass(frozen=True)
class Row:
    """As it stands in the JSON file. What could not be measured is null, and `peer` says so."""

    work: str
    unit: str
    ours: float | None
    peer: str
    theirs: float | None
    ratio: float | None
    target: str
    met: bool | None


def load(bench: str) -> list[Target]:
    with open(SOURCES / "targets.toml", "rb") as file:
        entries = tomllib.load(file)["target"]
    return [t for entry in entries if bench in entry["bench"] for t in _expand(entry)]


def _expand(entry: dict) -> Iterator[Target]:  # type: ignore[type-arg]
    bars = [name for name in ("at_most", "at_least", "plus_us") if name in entry]
    if len(bars) != 1:
        raise BenchError(f"targets.toml: one bar per target, not {bars}: {entry}")
    lists = (
        entry["op"],
        entry.get("dtype", ["fp32"]),
        entry["layout"],
        entry["size"],
        entry.get("mode", [""]),
        entry["metric"],
    )
    for op, dtype, layout, size, mode, metric in itertools.product(*lists):
        case = Case(
            layer=entry["layer"],
            op=op,
            dtype=dtype,
            layout=layout,
            size=parse_size(size),
            link=entry.get("link", "shm"),
            buffers=entry.get("buffers", "private"),
            mode=mode,
        )
        yield Target(case, entry["peer"], metric, bars[0], float(entry[bars[0]]))


def peer_case(peer: str, case: Case) -> tuple[str, Case]:
    """Whose figure, and of which case, a target is held against."""
    if peer == "fp32":
        return OURS, dataclasses.replace(case, dtype="fp32")
    if peer == "memcpy":
        return peer, dataclasses.replace(case, op="memcpy", buffers="private")
    if peer == "ring":
        layout = f"{case.nodes}x1"
        return peer, Case("core", "ring", "fp32", layout, case.size, case.link)
    if peer == "bound":
        return peer, Case("core", "bound", "fp32", f"{case.nodes}x1", case.size, case.link)
    return peer, case


def evaluate(targets: list[Target], samples: Samples, cases: set[Case]) -> list[Row]:
    """One row a target whose case is among `cases`, those that this run set out to measure."""
    return [_row(target, samples) for target in targets if target.case in cases]


def _row(target: Target, samples: Samples) -> Row:
    ours = samples.median(OURS, target.case, target.metric)
    peer, theirs = _theirs(target, samples)
    if ours is None:
        peer += "; ours not measured"
    both = ours is not None and theirs is not None
    return Row(
        work=f"{target.case.describe()}, {METRIC_NAMES[target.metric]}",
        unit="us",
        ours=None if ours is None else round(ours, 3),
        peer=peer,
        theirs=None if theirs is None else round(theirs, 3),
        ratio=round(target.ratio(ours, theirs), 3) if both else None,  # type: ignore[arg-type]
        target=target.describe(),
        met=target.met(ours, theirs) if both else None,  # type: ignore[arg-type]
    )


def _theirs(target: Target, samples: Samples) -> tuple[str, float | None]:
    if target.peer != "best-mpi":
        key, case = peer_case(target.peer, target.case)
        value = samples.median(key, case, target.metric)
        label = samples.labels.get(key, key)
        if target.peer == "fp32":
            label = "own fp32"
        return (label if value is not None else f"{label}: not measured"), value
    found = {}
    absent = []
    for key in MPI_KEYS:
        value = samples.median(key, target.case, target.metric)
        label = samples.labels.get(key, key)
        if value is not None:
            found[label] = value
        else:
            absent.append(label)
    missing = f"; not measured: {', '.join(absent)}" if absent else ""
    if not found:
        return f"best MPI{missing}", None
    best = min(found, key=lambda label: found[label])
    return f"{best}{missing}", found[best]
