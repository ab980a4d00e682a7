"""Datasets with something wrong about them, made by spoiling the tables of a sound one; no expectations here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tests.models.synthetic import METRICS, Row, Tables, World, profile_row

COPIES = 200
HUGE = 1e12  # larger than anything that is measured, and still a number that the tables take


def _profiles(change: Callable[[Row], Row | None]) -> Callable[[Tables], Tables]:
    """Tables with every row of the profiles changed, or left out where `change` gives None."""
    return lambda good: replace(
        good, profiles=tuple(row for old in good.profiles if (row := change(dict(old))) is not None)
    )


def _colocations(change: Callable[[Row], Row | None]) -> Callable[[Tables], Tables]:
    return lambda good: replace(
        good, colocations=tuple(row for old in good.colocations if (row := change(dict(old))) is not None)
    )


def constant(row: Row) -> Row:
    """Every workload measures the same."""
    return {**row, "value": 50}


def huge(row: Row) -> Row:
    """No machine reaches this; the CPU's share stays what it is."""
    return row if row["metric"] == "cpu" else {**row, "value": HUGE + float(str(row["value"])) * 1e9}


def extreme(row: Row) -> Row:
    """The largest number that tables take, the smallest above 0, and 0, in turn."""
    at = int(str(row["workload"])[1:]) + METRICS.index(str(row["metric"]))
    return {**row, "value": (1e15, 5e-324, 0.0)[at % 3]}


def with_holes(row: Row) -> Row | None:
    """Each workload lacks another metric."""
    number = int(str(row["workload"])[1:])
    return None if row["metric"] == METRICS[number % len(METRICS)] else row


def copied(count: int) -> Callable[[Tables], Tables]:
    """`count` metrics that are one metric under other names and in other units."""

    def change(good: Tables) -> Tables:
        copies = [
            {**row, "metric": f"copy{number}", "value": float(str(row["value"])) * (1 + number)}
            for row in good.profiles
            if row["metric"] == "llc_misses"
            for number in range(count)
        ]
        return replace(good, profiles=(*good.profiles, *copies))

    return change


def with_many_metrics(count: int, workloads: int = 6) -> Tables:
    """`count` metrics of every workload, all different, named as levels are (`m_17`)."""
    good = World(workloads=workloads).tables()
    values = np.random.default_rng(0).lognormal(size=(workloads, count))
    more = tuple(
        profile_row(f"w{at}", f"m_{number}", float(value))
        for at, row in enumerate(values)
        for number, value in enumerate(row)
    )
    return replace(good, profiles=(*good.profiles, *more))


def with_ratio(ratio: Callable[[Row], float]) -> Callable[[Tables], Tables]:
    """Every T/B replaced by what `ratio` makes of its row."""
    return _colocations(lambda row: {**row, "solo": 100, "colocated": 100 * ratio(row)})


def only_runs(*runs: str) -> Callable[[Tables], Tables]:
    """Some runs alone."""
    return _colocations(lambda row: row if row["run"] in runs else None)


def described(good: Tables) -> Tables:
    """Platforms with a further column of text and one of numbers."""
    more = {"vendor": "ACME, 2nd floor", "numa_distance": 21}
    return replace(good, platforms=tuple({**row, **more} for row in good.platforms))


def renamed(names: Mapping[str, str]) -> Callable[[Tables], Tables]:
    """Workloads under other names."""

    def change(row: Row) -> Row:
        return {**row, "workload": names.get(str(row["workload"]), row["workload"])}

    return lambda good: _colocations(change)(_profiles(change)(good))


LEARNABLE: Mapping[str, Callable[[Tables], Tables]] = {
    "constant metrics": _profiles(constant),
    "no profiles at all": _profiles(lambda _row: None),
    "one metric missing everywhere": _profiles(lambda row: row if row["metric"] != "cpu" else None),
    "another metric missing of each workload": _profiles(with_holes),
    "a workload without a profile": _profiles(lambda row: row if row["workload"] != "w1" else None),
    "metrics of 1e12": _profiles(huge),
    "metrics of 1e15, next to 0 and 0": _profiles(extreme),
    "collinear metrics": _profiles(lambda row: {**row, "value": int(str(row["workload"])[1:]) + 1.0}),
    "a metric under two names": copied(1),
    "a metric under 201 names": copied(COPIES),
    "a single workload beside itself": only_runs("0.0-0-0"),
    "one pair only": only_runs("0.0-0-1"),
    "two workloads": only_runs("0.0-0-0", "0.0-0-1", "0.0-1-1"),
    "no neighbour ever felt": with_ratio(lambda _row: 1.0),
    "contradictory repeats": with_ratio(lambda row: 0.1 if row["repeat"] else 1.0),
    "ratios far above 1.05": with_ratio(lambda row: 5.0 + 0.2 * (row["repeat"] == 1)),
    "ratios at 0": with_ratio(lambda _row: 0.0),
    "ratios at 0 and far above 1.05": with_ratio(lambda row: 40.0 * (row["instance"] == "vm0")),
    "names that differ in case": renamed({"w0": "Web", "w1": "web"}),
    "platforms with further columns": described,
}
