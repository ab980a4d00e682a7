"""How sure the ratios T/B of a dataset on/off are: by their standard errors, and by what was measured twice.

python -m research.pair_precision DATASET

It also says how sure they would be had the speed of CPUs not been taken out, from the same windows.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

from lab.on_off.estimator import StateShare, estimate_ratio

_NORMAL = 1.96
NARROW = 0.03
_SETTINGS = ("driver_cpus", "cap_percent", "weight", "net_mode", "net_rate_mbit", "disk_limit_mb_s")
_MEAN_OF_NORMAL = math.sqrt(2 / math.pi)  # mean distance from 0 in standard deviations


@dataclass(frozen=True, slots=True)
class PairRatio:
    """T/B of one member of a state: `place` says who shared CPUs with whom, `company` who the others were, both members
    with their settings. `run` is one in one round, or how many rounds it is the mean of."""

    run: str
    state: str
    instance: str
    workload: str
    company: tuple[str, ...]
    place: str
    clients: tuple[str, ...]
    ratio: float
    error: float

    @property
    def width(self) -> float:
        """Half of its 95 % interval, relative."""
        return _NORMAL * self.error / self.ratio if self.ratio else math.inf


def read_ratios(directory: Path) -> list[PairRatio]:
    """Throughput rows of a dataset with `ratio_se`, of every state."""
    with (directory / "runs.csv").open(newline="") as file:
        clients = {(row["run"], row["instance"]): row["clients"] for row in csv.DictReader(file)}
    states: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    with (directory / "colocations.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["outcome"] == "throughput":
                states[row["run"], row["repeat"]].append(row)
    return [_ratio(row, rows, clients) for rows in states.values() for row in rows]


def _ratio(row: dict[str, str], rows: Sequence[dict[str, str]], clients: Mapping[tuple[str, str], str]) -> PairRatio:
    others = sorted((other for other in rows if other is not row), key=lambda other: other["workload"])
    cpus = _cpus(row["pinning"])
    shares = ["same" if _cpus(other["pinning"]) == cpus else "different" for other in others]
    place = "shared" if "-" in cpus else "+".join(shares)
    ratio = float(row["colocated"]) / float(row["solo"])
    whose = tuple(clients.get((row["run"].partition("/")[0], one["instance"]), "") for one in (row, *others))
    company = tuple(_member(other) for other in others)
    run = f"{row['run'].partition('/')[0]} {row['repeat']}"
    error = float(row["ratio_se"])
    return PairRatio(run, row["run"], row["instance"], _member(row), company, place, whose, ratio, error)


def _member(row: Mapping[str, str]) -> str:
    """The workload with the settings that it had there."""
    return " ".join([row["workload"], *(f"{name}={row[name]}" for name in _SETTINGS if row.get(name))])


def _cpus(pinning: str) -> str:
    return pinning.partition(":")[2]


def over_rounds(ratios: Iterable[PairRatio]) -> list[PairRatio]:
    """The mean of each member of each state over the rounds that measured it."""
    alike: dict[tuple[str, str], list[PairRatio]] = defaultdict(list)
    for one in ratios:
        alike[one.state, one.instance].append(one)
    return [
        replace(
            of[0],
            run=str(len(of)),
            ratio=fmean(one.ratio for one in of),
            error=math.sqrt(sum(one.error**2 for one in of)) / len(of),
        )
        for of in alike.values()
    ]


def sentences(ratios: Iterable[PairRatio]) -> list[str]:
    """One line for each number of members and place, of means over rounds, and one of what was measured twice."""
    singly = list(ratios)
    known = over_rounds(singly)
    lines = [
        "| members | CPUs | states | ratios | within ±3 % | median ±95 % | noise MAE |",
        "|---|---|---|---|---|---|---|",
    ]
    kinds: dict[tuple[int, str], list[PairRatio]] = defaultdict(list)
    for one in known:
        kinds[len(one.company) + 1, one.place if len(one.company) == 1 or one.place == "shared" else "any"].append(one)
    for (size, place), of in sorted(kinds.items()):
        states = len({one.state for one in of})
        narrow, width = fmean(one.width <= NARROW for one in of), median(one.width for one in of)
        noise = _MEAN_OF_NORMAL * fmean(one.error for one in of)
        lines.append(
            f"| {size} | {place} | {states} | {len(of)} | {100 * narrow:.0f} % | {100 * width:.1f} % | {noise:.4f} |"
        )
    twice = repeats(singly)
    if twice:
        apart, expected = (fmean(values) for values in zip(*twice, strict=True))
        lines.append(
            f"{len(twice)} ratios were measured in two runs: they differ by {apart:.4f} on average,"
            f" and by {expected:.4f} by their standard errors"
        )
    return lines


def widths_without_speed(directory: Path) -> list[float]:
    """Half widths, relative, of all ratios of `series.csv.gz` with rates as they were at whatever speed; none without
    that file."""
    if not (directory / "series.csv.gz").is_file():
        return []
    series: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    with gzip.open(directory / "series.csv.gz", "rt", newline="") as file:
        for row in csv.DictReader(file):
            series[f"{row['run']} {row['repeat']}"][row["instance"]][row["metric"]].append(float(row["value"]))
    found: list[float] = []
    for members in series.values():
        if len(members) > 1 and all("works" in metrics for metrics in members.values()):
            found += _widths(list(members.values()))
    return found


def _widths(members: Sequence[Mapping[str, Sequence[float]]]) -> Iterator[float]:
    count = 2 ** len(members) - 1
    blocks: list[dict[tuple[int, ...], int]] = []
    for at in range(len(members[0]["works"])):
        if at % count == 0:
            blocks.append({})
        if not members[0]["disturbed"][at]:
            blocks[-1][tuple(place for place, one in enumerate(members) if one["works"][at])] = at
    for place, own in enumerate(members):
        for state in {state for block in blocks for state in block if place in state and len(state) > 1}:
            pairs = [(block[state], block[place,]) for block in blocks if state in block and (place,) in block]
            rates = [(StateShare(own["progress"][a], 1), StateShare(own["progress"][b], 1)) for a, b in pairs]
            ratio = estimate_ratio(rates, f"{place}:{state}")
            if ratio is not None and ratio.ratio:
                yield _NORMAL * ratio.error / ratio.ratio


def repeats(ratios: Iterable[PairRatio]) -> list[tuple[float, float]]:
    """Pairs that two runs measured on CPUs and with generators shared alike: how far apart, and what errors expect."""
    alike: dict[tuple[object, ...], list[PairRatio]] = defaultdict(list)
    for one in ratios:
        if len(one.company) == 1:
            alike[one.workload, one.company, one.place, one.clients].append(one)
    return [
        (abs(a.ratio - b.ratio), _MEAN_OF_NORMAL * math.hypot(a.error, b.error))
        for of in alike.values()
        for a, b in combinations(of, 2)
        if a.run != b.run
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m research.pair_precision", description=__doc__)
    parser.add_argument("dataset", type=Path, help="the folder that a campaign on/off wrote")
    folder: Path = parser.parse_args(arguments).dataset
    if not (folder / "runs.csv").is_file():
        parser.error(f"{folder} holds no runs.csv: give the folder that cotenant-lab run --dataset wrote")
    ratios, widths = read_ratios(folder), widths_without_speed(folder)
    sys.stdout.write("\n".join(sentences(ratios)) + "\n")
    if widths:
        narrow = 100 * fmean(width <= NARROW for width in widths)
        sys.stdout.write(
            f"all ratios of single rounds: ±95 % median {100 * median(one.width for one in ratios):.1f} %,"
            f" {100 * fmean(one.width <= NARROW for one in ratios):.0f} % within ±3 %;"
            f" with speed left in: {100 * median(widths):.1f} %, {narrow:.0f} %\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
