# SPDX-License-Identifier: Apache-2.0
"""Targets are read as written, and held against the right figure of the right peer."""

from __future__ import annotations

import pytest

from benchmarks.harness import targets
from benchmarks.harness.cases import Case, Measure, format_size, parse_size
from benchmarks.harness.rounds import Samples

CASE = Case("core", "allreduce", "fp32", "1x2", 1 << 20)


def samples_of(figures: dict[tuple[str, Case], list[float]]) -> Samples:
    samples = Samples()
    for (key, case), medians in figures.items():
        samples.labels[key] = key.upper()
        for median in medians:
            samples.add(key, case, Measure(median, 2 * median, 3 * median, 9))
    return samples


def target(peer: str, bar: str, value: float, metric: str = "median_us") -> targets.Target:
    return targets.Target(CASE, peer, metric, bar, value)


def row_of(one: targets.Target, samples: Samples) -> targets.Row:
    (row,) = targets.evaluate([one], samples, {CASE})
    return row


@pytest.mark.parametrize("bench", ["allreduce", "latency", "network", "ddp", "collectives"])
def test_every_target_is_measured_by_its_benchmark(bench: str) -> None:
    import importlib

    module = importlib.import_module(f"benchmarks.{bench}")
    jobs = [job for group in module.groups(False) for job in group.jobs]
    done = {(job.contender.key, case) for job in jobs for case in job.cases}
    found = targets.load(bench)
    assert found
    for one in found:
        assert ("hfreduce", one.case) in done
        peers = targets.MPI_KEYS if one.peer == "best-mpi" else [one.peer]
        assert {targets.peer_case(peer, one.case) for peer in peers} <= done


def test_every_group_is_of_one_layout_link_and_mode() -> None:
    """A contender measures all cases of a job in one start."""
    import importlib

    for bench in ("allreduce", "latency", "network", "ddp", "collectives"):
        for quick in (False, True):
            for group in importlib.import_module(f"benchmarks.{bench}").groups(quick):
                for job in group.jobs:
                    assert len({(case.layout, case.link, case.mode) for case in job.cases}) == 1


@pytest.mark.parametrize(
    ("bar", "value", "ours", "theirs", "ratio", "met"),
    [
        ("at_most", 1.2, 12.0, 10.0, 1.2, True),
        ("at_most", 1.2, 12.1, 10.0, 1.21, False),
        ("at_least", 4.0, 2.5, 10.0, 4.0, True),
        ("at_least", 4.0, 2.6, 10.0, 3.846, False),
        ("plus_us", 3.0, 13.0, 10.0, 1.3, True),
        ("plus_us", 3.0, 13.1, 10.0, 1.31, False),
    ],
)
def test_bars(bar: str, value: float, ours: float, theirs: float, ratio: float, met: bool) -> None:
    samples = samples_of({("hfreduce", CASE): [ours], ("gloo", CASE): [theirs]})
    row = row_of(target("gloo", bar, value), samples)
    assert (row.ratio, row.met) == (ratio, met)


def test_the_median_round_of_the_stated_metric_counts() -> None:
    samples = samples_of({("hfreduce", CASE): [1.0, 9.0, 2.0], ("gloo", CASE): [10.0, 30.0, 20.0]})
    row = row_of(target("gloo", "at_least", 1.0, "b2b_us"), samples)
    assert (row.ours, row.theirs) == (4.0, 40.0)


def test_the_fastest_mpi_counts_and_absent_ones_are_named() -> None:
    samples = samples_of(
        {("hfreduce", CASE): [4.0], ("openmpi", CASE): [9.0], ("mpich", CASE): [8.0]}
    )
    samples.labels["intelmpi"] = "Intel MPI"
    row = row_of(target("best-mpi", "at_least", 1.0), samples)
    assert (row.theirs, row.ratio) == (8.0, 2.0)
    assert row.peer == "MPICH; not measured: Intel MPI"


@pytest.mark.parametrize("present", ["hfreduce", "gloo"])
def test_what_is_missing_is_neither_met_nor_missed(present: str) -> None:
    row = row_of(target("gloo", "at_least", 1.0), samples_of({(present, CASE): [1.0]}))
    assert row.met is None
    assert row.ratio is None
    assert "not measured" in row.peer


def test_half_types_are_held_against_own_fp32() -> None:
    half = Case("torch", "allreduce", "bf16", "1x2", 1 << 20)
    key, case = targets.peer_case("fp32", half)
    assert (key, case.dtype, case.size) == ("hfreduce", "fp32", half.size)


def test_link_bound_counts_nodes_not_ranks() -> None:
    from benchmarks.harness.cases import Plan
    from benchmarks.harness.peers import LinkRate
    from benchmarks.harness.place import Place

    ours = Case("torch", "allreduce", "fp32", "2x2", 64 << 20, "1gbit")
    _, case = targets.peer_case("bound", ours)
    measure = LinkRate().run([case], Plan(1, 1), Place(2, 1))[case]
    assert measure.median_us == pytest.approx((64 << 20) * 8 / 1e9 * 1e6)


@pytest.mark.parametrize("size", [8, 1024, 65536, 3 << 20, 1 << 30])
def test_sizes_survive_print_and_parse(size: int) -> None:
    assert parse_size(format_size(size)) == size
