"""Whether the reported worth of advice is right: simulated clouds over weeks whose truth is known.

    python -m research.advice_worth [--clouds N] [--draws N] [--seed N]

Simulated, nothing here is measured, and no model is asked. Instances of several classes and sizes come to hosts and
leave over three weeks. Who asks depends on class and week, and who asks follows. In one kind of cloud the advice is the
host that is asked for least, and others go where Nova's weighers put them; in the other both go to any host, so that
advice is worth nothing. What each gets in an hour is by max-min sharing of its host's CPUs. What is reported is made by
the code of the product.

Each cloud is lived through several times, with the same instances and demands; only who asks is drawn anew. The truth
of a cloud that advice helps is the mean difference in its other lives, within groups of class, size and half of the
time: in each of these who asks is drawn by lot, which the simulation knows and the product does not. Where both go
anywhere it is 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.evaluation.matched_outcomes import FaredUnit, MatchedDifference, alike_within_bounds, matched_difference

HOSTS, OVERCOMMIT = 12, 4
CLOUDS = ((0.45, 7), (0.9, 12))  # instances that come in an hour, and CPUs of a host: both are 70 % busy
HOURS, PER_DAY, WATCHED = 21 * 24, 24, 7 * 24
CLASSES = ("web", "db", "batch", "idle")
WANTS = np.array([0.25, 0.5, 0.8, 0.05])  # CPUs per vCPU on average
ASKS = np.array([0.6, 0.5, 0.25, 0.4])  # how many of a class ask: not at random
ASKS_LATER = 0.2  # more, in the second half, when the cloud is fuller
SIZES = np.array([1, 2, 4])
STAY = 5 * 24  # hours, on average
Rule = Callable[["HostsNow"], int]


@dataclass
class HostsNow:
    """What a rule may know: CPUs of a host, and vCPUs promised and mean demand of each (H,)."""

    rng: np.random.Generator
    pcpus: int
    vcpus: Floats
    wanted: Floats


def least_asked(now: HostsNow) -> int:
    """Where the known demand is lowest, of hosts with room."""
    return int(np.where(now.vcpus < now.pcpus * OVERCOMMIT, now.wanted, np.inf).argmin())


def most_free(now: HostsNow) -> int:
    """Where most vCPUs are free, as by Nova's weighers; memory is bought with vCPUs here."""
    return int(now.vcpus.argmin())


def by_lot(now: HostsNow) -> int:
    """Any host."""
    return int(now.rng.integers(HOSTS))


@dataclass(frozen=True)
class Weeks:
    """Hosts of `pcpus` CPUs and N instances (N,): class, vCPUs, hours of coming and leaving, where they are, whether
    they asked; and what each wants in each hour (HOURS, N), 0 where it is not there."""

    pcpus: int
    kind: Ints
    vcpus: Ints
    begins: Ints
    ends: Ints
    host: Ints
    followed: Bools
    wanted: Floats


def simulated(
    rng: np.random.Generator, lots: np.random.Generator, advised: Rule, usual: Rule, come: float, pcpus: int
) -> Weeks:
    """One cloud; `come` instances come in an hour, on average, after those that are there. `lots` draw who asks."""
    begins = np.repeat(np.arange(HOURS), [round(come * STAY), *rng.poisson(come, HOURS - 1)])
    number = len(begins)
    kind, vcpus = rng.integers(len(CLASSES), size=number), rng.choice(SIZES, size=number)
    ends = np.minimum(begins + 1 + rng.exponential(STAY, number).astype(int), HOURS)
    later = begins > HOURS / 2
    usually = vcpus * np.minimum(WANTS[kind] * np.exp(0.4 * rng.normal(size=number)), 0.95)
    asks = ASKS[kind] + ASKS_LATER * later
    followed = (lots.random(number) < asks) & (begins > 0)
    noise = np.exp(0.3 * rng.normal(size=(HOURS, number)))
    host = np.zeros(number, dtype=np.int64)
    for at in range(number):
        there = np.flatnonzero(ends[:at] > begins[at])
        promised, asked = (np.bincount(host[there], each[there], HOSTS).astype(np.float64) for each in (vcpus, usually))
        now = HostsNow(lots, pcpus, promised, asked)
        host[at] = advised(now) if followed[at] else usual(now)
    hours = np.arange(HOURS)[:, None]
    day = 1 + 0.4 * np.sin(2 * np.pi * hours / PER_DAY)
    wanted = np.minimum(usually * day * noise, vcpus)
    wanted = np.where((hours >= begins) & (hours < ends), wanted, 0.0)
    return Weeks(pcpus, kind, vcpus, begins, ends, host, followed, wanted)


def fair(wanted: Floats, pcpus: int) -> Floats:
    """What each may have at most of a host by max-min sharing among all in a row, (R,) of (R, N); inf = all."""
    rising = np.sort(wanted, axis=1)
    count = rising.shape[1]
    before = np.cumsum(rising, axis=1) - rising
    level = (pcpus - before) / np.arange(count, 0, -1)
    short = rising > level
    first = short.argmax(axis=1)
    found = level[np.arange(len(level)), first]
    return np.where(short.any(axis=1), found, np.inf)


@dataclass(frozen=True, slots=True)
class WorthTrial:
    """What is reported of one cloud, the difference where lots were drawn, and that of plain means."""

    found: MatchedDifference
    drawn: float
    plain: float


def trial(cloud: Weeks) -> WorthTrial:
    """Report on those that came, each over its first week."""
    levels = np.stack([fair(cloud.wanted[:, cloud.host == host], cloud.pcpus) for host in range(HOSTS)], axis=1)
    units, drawn = [], []
    for at in np.flatnonzero(cloud.begins > 0).tolist():
        hours = slice(cloud.begins[at], min(cloud.ends[at], cloud.begins[at] + WATCHED))
        want = cloud.wanted[hours, at]
        share = float(np.minimum(levels[hours, cloud.host[at]] / want, 1.0).mean())
        stratum = f"{CLASSES[cloud.kind[at]]} {cloud.vcpus[at]}"
        followed, begins = bool(cloud.followed[at]), 3600.0 * float(cloud.begins[at])
        units.append(FaredUnit(followed, stratum, str(cloud.host[at]), float(want.mean()), begins, share))
        drawn.append(f"{stratum} {cloud.begins[at] > HOURS / 2}")
    counted = np.asarray(alike_within_bounds(units).any(axis=1))
    plain = within(units, [""] * len(units), np.ones(len(units), dtype=bool))
    return WorthTrial(matched_difference(units), within(units, drawn, counted), plain)


def within(units: Sequence[FaredUnit], group: Sequence[str], counted: Bools) -> float:
    """How much more those got who followed, within groups, each of which weighs as many as are `counted` (N,) in it."""
    sums: dict[str, tuple[list[float], list[float]]] = {}
    weights: dict[str, int] = {}
    for one, name, counts in zip(units, group, counted.tolist(), strict=True):
        sums.setdefault(name, ([], []))[not one.followed].append(one.outcome)
        weights[name] = weights.get(name, 0) + (counts and one.followed)
    both = {name: np.mean(pair[0]) - np.mean(pair[1]) for name, pair in sums.items() if pair[0] and pair[1]}
    return float(sum(weights[name] * more for name, more in both.items()) / sum(weights[name] for name in both))


def main(arguments: Sequence[str]) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clouds", type=int, default=40)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    sys.stdout.write(
        "cloud               come  truth    reported  plain   half width  told  covers truth  covers 0  matched\n"
    )
    clouds = {
        (name, come): (advised, usual, come, pcpus)
        for name, advised, usual in (
            ("advice, else Nova", least_asked, most_free),
            ("nothing but chance", by_lot, by_lot),
        )
        for come, pcpus in CLOUDS
    }
    found: dict[tuple[str, float], list[list[WorthTrial]]] = {key: [] for key in clouds}
    for number in range(asked.clouds):
        for key, cloud in clouds.items():
            lives = [np.random.default_rng([asked.seed, number, life]) for life in range(asked.draws)]
            same = [np.random.default_rng([asked.seed, number]) for _ in lives]
            found[key].append([trial(simulated(one, lots, *cloud)) for one, lots in zip(same, lives, strict=True)])
        if (number + 1) % 10 == 0 or number + 1 == asked.clouds:
            sys.stdout.write(f"after {number + 1} clouds\n")
            for (name, come), trials in found.items():
                sys.stdout.write(f"{name:19} {come:4}  {row(trials, chance=name.startswith('nothing'))}\n")
            sys.stdout.flush()


def row(clouds: Sequence[Sequence[WorthTrial]], *, chance: bool) -> str:
    """The figures of one kind of cloud."""
    rows = [
        (0.0 if chance else float(np.mean([one.drawn for one in lives if one is not mine])), mine)
        for lives in clouds
        for mine in lives
    ]
    told = [(truth, one.found.difference, one.found.lower, one.found.upper) for truth, one in rows]
    kept = np.array([each for each in told if each[2] is not None], dtype=float)
    truth, said, lower, upper = kept.T
    means = (
        float(np.mean([truth for truth, _ in rows])),
        float(said.mean()),
        float(np.mean([one.plain for _, one in rows])),
    )
    covers = [np.mean((lower <= at) & (at <= upper)) for at in (truth, 0.0)]
    return (
        f"{'  '.join(format(one, '+.4f') for one in means)}  {np.mean(upper - lower) / 2:10.4f}  {len(kept):4}  "
        f"{covers[0]:12.0%}  {covers[1]:8.0%}  {np.mean([one.found.matched for _, one in rows]):7.0f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
