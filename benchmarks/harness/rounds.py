# SPDX-License-Identifier: Apache-2.0
"""Interleaved rounds: in each, every contender does its work in turn, in a rotated order."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from .cases import BenchError, Case, Measure, Plan
from .peers import Contender
from .place import place_for
from .state import say


@dataclass
class Job:
    contender: Contender
    cases: Sequence[Case]


@dataclass
class Group:
    """Jobs that are compared with each other: the same layout, link and mode."""

    jobs: Sequence[Job]
    plan: Plan
    title: str


@dataclass
class Samples:
    """What each round measured, and why anything could not be."""

    rounds: dict[tuple[str, Case], list[Measure]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    failures: dict[tuple[str, Case], str] = field(default_factory=dict)

    def add(self, contender: str, case: Case, measure: Measure) -> None:
        self.rounds.setdefault((contender, case), []).append(measure)

    def values(self, contender: str, case: Case, metric: str) -> list[float]:
        return [measure.get(metric) for measure in self.rounds.get((contender, case), [])]

    def median(self, contender: str, case: Case, metric: str) -> float | None:
        values = self.values(contender, case, metric)
        return statistics.median(values) if values else None


def prepare(contenders: Sequence[Contender]) -> dict[int, str]:
    """Sets all up. Returns the reason for each (by id) that cannot be run here."""
    reasons = {}
    for contender in contenders:
        try:
            contender.prepare()
        except BenchError as error:
            reasons[id(contender)] = str(error)
            say(f"{contender.label} is left out: {error}")
    return reasons


def interleave(groups: Sequence[Group], rounds: int) -> Samples:
    samples = Samples()
    contenders = list({id(job.contender): job.contender for g in groups for job in g.jobs}.values())
    reasons = prepare(contenders)
    for contender in contenders:
        samples.labels[contender.key] = contender.label
    left_out: dict[int, str] = {}  # by id of the job
    for group in groups:
        for job in group.jobs:
            if id(job.contender) in reasons:
                left_out[id(job)] = reasons[id(job.contender)]
    for round_ in range(rounds):
        for group in groups:
            order = list(group.jobs)
            order = order[round_ % len(order) :] + order[: round_ % len(order)]
            for job in order:
                if id(job) not in left_out:
                    _run(job, group, f"round {round_ + 1}/{rounds}", samples, left_out)
    for group in groups:
        for job in group.jobs:
            for case in job.cases:
                if id(job) in left_out:
                    samples.failures[job.contender.key, case] = left_out[id(job)]
    return samples


def _run(job: Job, group: Group, prefix: str, samples: Samples, left_out: dict[int, str]) -> None:
    start = time.monotonic()
    contender = job.contender
    try:
        with place_for(job.cases[0]) as place:
            found = contender.run(job.cases, group.plan, place)
    except BenchError as error:
        left_out[id(job)] = str(error)
        say(f"{prefix}: {group.title}: {contender.label} failed: {error}")
        return
    for case, measure in found.items():
        samples.add(contender.key, case, measure)
    say(f"{prefix}: {group.title}: {contender.label}: {time.monotonic() - start:.1f} s")
