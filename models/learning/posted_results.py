"""Posted results: what instances were measured to reach beside others moves the model's answer about them at once.

The model is off by log(measured / expected) in a scene. Over scenes this is a Gaussian process: errors of the same
instance beside the same neighbours, of the same instance beside any and of any beside the same neighbours are alike,
the less so the further what the model expects in the two scenes lies apart (`Spreads`). The shift of an answer is the
posterior mean, shrunk by how much was posted; its range narrows by the posterior variance and holds the scatter of the
results. The variances are those of the analytic model's errors on
measured campaigns, each left out in turn (research.benchmarks.posted_results, decision 182).

What a probe in the place of an instance's own work reached says less of that work (`PROBE`), however often it ran.

Results come from outside. Each is clipped at `FURTHEST`; many of one sender are correlated (`ALIKE`), so that a sender
counts as at most 1 / ALIKE results of a scene; and within a scene location and scatter are robust (Huber), so that a
few wrong ones move little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.scene import SceneBatch
from models.data.topology import cpu_overlap
from models.prediction import BandArrays
from profiler.host_kinds import HOST_KINDS

ALIKE = 0.2  # correlation of the results of one sender in one scene
FURTHEST = math.log(4.0)  # of one result from what the model expects
AS_NOISE = 4.0  # results that the usual noise counts as where the scatter is estimated
SAME = 0.005  # log scale: two corrections that differ less are one
MOST_SCENES = 500  # different ones that count; beyond, the oldest do not
HUBER, OUTLIER = 1.345, 3.0  # in standard deviations
SURE = 1.645  # of a normal distribution, 90 %
WIDER = 2.0  # times a normal distribution's: of the measured campaigns 90 % lie within 1.3 to 3.8 times (decision 182)
LEAST_RATIO = 1e-3
_AT_ONCE = 100  # instances that are moved at a time: of more, most results are about others
# Log scale, standard deviation of the difference between the model's error with a loop and with another program in its
# place: the largest that a measured campaign asks for (decision 196).
PROBE = 0.28


@dataclass(frozen=True, slots=True)
class Spreads:
    """Standard deviations, log scale: of the model's error with a pair, with a victim beside any instance, with a
    neighbour beside any instance, and of one result (`noise`); `reach` is the distance of log T/B expected over which
    errors are hardly alike, and `elsewhere` (0-1) how alike they are on different platforms."""

    pair: float
    victim: float
    neighbour: float
    noise: float
    reach: float
    elsewhere: float

    @property
    def total(self) -> float:
        """The variance of the model's error with any instance."""
        return self.pair**2 + self.victim**2 + self.neighbour**2


MEASURED = Spreads(pair=0.20, victim=0.34, neighbour=0.22, noise=0.11, reach=0.17, elsewhere=0.79)


@dataclass(frozen=True, slots=True)
class PostedRow:
    """One result: whose, beside which others, where (`places_of`), what the model expected there and what was measured
    (T/B both), which user sent it, and how far what was measured may be `apart` from what the instance itself would
    reach (standard deviation, log scale). `beside` has the weight of each neighbour by its number and by whether it
    shares CPUs; `length` is that of the vector of all neighbours' weights, known or not."""

    victim: int
    beside: Mapping[tuple[int, bool], float]
    length: float
    place: int
    expected: float
    measured: float
    sender: str = ""
    apart: float = 0.0


@lru_cache(maxsize=4096)
def number_of(subject: str) -> int:
    """A number for the name of an instance or workload, the same everywhere; never 0."""
    return 1 + int.from_bytes(blake2b(subject.encode(), digest_size=6).digest(), "big")


@dataclass(frozen=True, slots=True)
class PostedCell:
    """Results of one scene: how far the model is off (log), how many independent results that rests on, their scatter
    (standard deviation), and how far they all may be `apart` from what they are taken for."""

    victim: int
    beside: Mapping[tuple[int, bool], float]  # of length 1 with those that are not known
    place: int
    expected: float  # log
    off: float
    weight: float
    scatter: float
    count: int
    apart: float = 0.0


@dataclass(frozen=True, slots=True)
class PostedResults:
    """What was learned from posted results. Nothing in it depends on their order."""

    cells: tuple[PostedCell, ...]
    numbers: Ints  # (K,) of every instance in a result, sorted
    beside: Floats  # (C, 2K) of the cells: sharing CPUs, and not
    inverse: Floats  # (C, C) of the covariance of the cells' values
    solved: Floats  # (C,) the inverse times these values
    spreads: Spreads = MEASURED
    counts: Mapping[tuple[int, frozenset[int]], int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[PostedRow], spreads: Spreads = MEASURED) -> PostedResults | None:
        """From results, those that count first where there are too many; None = from none."""
        cells = cells_of(rows, spreads)
        if not cells:
            return None
        numbers = np.array(
            sorted({one.victim for one in cells} | {at for one in cells for at, _ in one.beside}), dtype=np.int64
        )
        at = {number: place for place, number in enumerate(numbers.tolist())}
        beside = np.zeros((len(cells), 2 * len(numbers)))
        for row, one in enumerate(cells):
            for (number, near), weight in one.beside.items():
                beside[row, at[number] + (0 if near else len(numbers))] = weight
        scenes = as_scenes(cells, beside)
        noise = np.array([one.scatter**2 / one.weight + one.apart**2 for one in cells])
        covariance = covariance_of(spreads, scenes, scenes) + np.diag(noise)
        inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        counts: dict[tuple[int, frozenset[int]], int] = {}
        for one in cells:
            key = one.victim, frozenset(number for number, _ in one.beside)
            counts[key] = counts.get(key, 0) + one.count
        solved = inverse @ np.array([one.off for one in cells])
        return cls(cells, numbers, beside, inverse, solved, spreads, counts)

    def is_like(self, other: PostedResults) -> bool:
        """Whether the other moves answers by as much, but for what no answer shows."""
        mine, others = ([(one.victim, one.beside, one.count) for one in each.cells] for each in (self, other))
        if mine != others:
            return False
        pairs = zip(self.cells, other.cells, strict=True)
        return all(
            abs(a.off - b.off) + abs(a.expected - b.expected) + abs(a.scatter - b.scatter) < SAME for a, b in pairs
        )

    def moved(self, scenes: SceneBatch, band: BandArrays) -> BandArrays:
        """The throughput of every instance in these scenes, (S, N), moved by what was posted; the same object where
        nothing is known of any instance there. What is above 1 and above what was expected before is cut off."""
        known = _known(scenes, self.numbers)
        at = np.flatnonzero(known.any(axis=1) & (scenes.present.sum(axis=1) > 1))
        if not len(at):
            return band
        edges = [edge.copy() for edge in (band.expected, band.lower, band.upper)]
        most = max(_AT_ONCE // scenes.slots, 1)
        for start in range(0, len(at), most):
            part = at[start : start + most]
            some = scenes.take(part)
            scene, slot = np.nonzero(some.present)
            found = self._moved(some, scene, slot, *(edge[part[scene], slot] for edge in edges))
            for edge, values in zip(edges, found, strict=True):
                edge[part[scene], slot] = values
        return BandArrays(*edges)

    def _moved(
        self, scenes: SceneBatch, scene: Ints, slot: Ints, expected: Floats, lower: Floats, upper: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """The same of single instances; all (R,)."""
        here = np.isin(self.numbers, scenes.subject)
        of_here = self.beside[:, np.concatenate([here, here])]
        there = np.array([one.victim for one in self.cells])
        alike = np.flatnonzero(np.isin(there, scenes.subject) | of_here.any(axis=1))  # others say nothing of these
        beside = beside_of(scenes, self.numbers[here])[scene, slot]
        was = np.log(np.maximum(expected, LEAST_RATIO))
        cells = [self.cells[at] for at in alike.tolist()]
        asked = scenes.subject[scene, slot], beside, places_of(scenes)[scene], was
        likeness = covariance_of(self.spreads, asked, as_scenes(cells, of_here[alike]))
        shift = likeness @ self.solved[alike]
        pull = likeness @ self.inverse[np.ix_(alike, alike)]
        known = np.clip((pull * likeness).sum(axis=1) / self.spreads.total, 0.0, 1.0)
        weight = np.maximum(pull, 0.0)
        scatter = weight @ np.array([one.scatter**2 for one in cells]) / np.maximum(weight.sum(axis=1), 1e-12)
        top = np.maximum(expected, 1.0)
        now = np.clip(expected * np.exp(shift), LEAST_RATIO, top)
        now = np.where(known > 0, now, expected)
        wider = 1 + (WIDER - 1) * known
        down, up = (
            wider * np.sqrt((1 - known) * (np.log(ratio) ** 2 + shift**2) + known * SURE**2 * scatter)
            for ratio in (np.maximum(lower, 1e-9) / expected, upper / expected)
        )
        highest = np.maximum(upper, top)
        nothing = known == 0
        return (
            now,
            np.where(nothing, lower, now * np.exp(-down)),
            np.where(nothing, upper, np.minimum(now * np.exp(up), highest)),
        )


def beside_of(scenes: SceneBatch, numbers: Ints) -> Floats:
    """The weights of each instance's neighbours, (S, N, 2K): of those with these `numbers` (K,) by the share of their
    CPUs that it may use, and by the rest; of length 1 together with all others."""
    near, others = _weights(scenes)
    who = (scenes.subject[:, :, None] == numbers) & scenes.present[:, :, None]
    vectors = np.concatenate([near @ (who * 1.0), (others - near) @ (who * 1.0)], axis=2)
    unknown = ~who.any(axis=2)[:, None, :]
    rest = ((near**2 + (others - near) ** 2) * unknown).sum(axis=2)
    length = np.sqrt((vectors**2).sum(axis=2) + rest)
    return np.asarray(vectors / np.maximum(length, 1e-12)[:, :, None])


def posted_row(scenes: SceneBatch, scene: int, slot: int, expected: float, measured: float, sender: str) -> PostedRow:
    """A result of one instance of a scene."""
    scenes = scenes.take(np.array([scene]))
    near, others = (one[0, slot] for one in _weights(scenes))
    beside: dict[tuple[int, bool], float] = {}
    rest = 0.0
    for at in np.flatnonzero(others).tolist():
        number = int(scenes.subject[0, at])
        for shares, weight in ((True, float(near[at])), (False, float(others[at] - near[at]))):
            if number and weight:
                beside[number, shares] = beside.get((number, shares), 0.0) + weight
            else:
                rest += weight**2
    length = math.sqrt(sum(weight**2 for weight in beside.values()) + rest)
    place = int(places_of(scenes)[0])
    return PostedRow(int(scenes.subject[0, slot]), beside, length, place, expected, measured, sender)


def places_of(scenes: SceneBatch) -> Ints:
    """A number for the platform of each scene's host, for its kind where it has no platform; (S,)."""
    names = [
        platform or HOST_KINDS[kind]
        for platform, kind in zip(scenes.platform.tolist(), scenes.kind.tolist(), strict=True)
    ]
    return np.array([number_of(name) for name in names], dtype=np.int64)


def _weights(scenes: SceneBatch) -> tuple[Floats, Floats]:
    """For each instance the part of each other one's CPUs that it may use, and 1 for each other one; (S, N, N)."""
    there = scenes.present[:, None, :] & scenes.present[:, :, None]
    others = np.where(there & ~np.eye(scenes.slots, dtype=bool)[None], 1.0, 0.0)
    return cpu_overlap(scenes) * others, others


def _known(scenes: SceneBatch, numbers: Ints) -> Bools:
    """Which instances have posted results, (S, N)."""
    if not scenes.subject.any():
        return np.zeros(scenes.present.shape, dtype=bool)
    return np.asarray(np.isin(scenes.subject, numbers) & scenes.present)


# (R,) whose number, (R, K) vectors of neighbours, (R,) numbers of places, (R,) log T/B expected
Scenes = tuple[Ints, Floats, Ints, Floats]


def as_scenes(cells: Sequence[PostedCell], beside: Floats) -> Scenes:
    """Of N cells the victim and place (N,), what is beside them (N, neighbours), and the expected ratio (N,)."""
    victim, place = (np.array([getattr(one, name) for one in cells], dtype=np.int64) for name in ("victim", "place"))
    return victim, beside, place, np.array([one.expected for one in cells])


def covariance_of(spreads: Spreads, some: Scenes, others: Scenes) -> Floats:
    """The covariance of the model's errors in R scenes with those in C, (R, C)."""
    (victim, beside, place, expected), (victims, besides, places, expecteds) = some, others
    same = (victim[:, None] == victims) & (victim[:, None] != 0)
    neighbours = beside @ besides.T
    near = np.exp(-0.5 * ((expected[:, None] - expecteds) / spreads.reach) ** 2)
    of_victim = same * (spreads.victim**2 + spreads.pair**2 * neighbours)
    near *= np.where(place[:, None] == places, 1.0, spreads.elsewhere)
    return np.asarray(near * (of_victim + spreads.neighbour**2 * neighbours))


def cells_of(rows: Sequence[PostedRow], spreads: Spreads) -> tuple[PostedCell, ...]:
    """The results by scene, in an order that does not depend on theirs."""
    together: dict[tuple[object, ...], list[PostedRow]] = {}
    for row in rows:
        if not row.beside or not row.length or not 0 < row.expected < math.inf or not 0 <= row.measured < math.inf:
            continue
        beside = tuple(sorted((who, round(weight / row.length, 3)) for who, weight in row.beside.items()))
        key = row.victim, beside, row.place, round(_log(row.expected), 2), row.apart
        if key in together or len(together) < MOST_SCENES:
            together.setdefault(key, []).append(row)
    return tuple(_cell(together[key], spreads.noise) for key in sorted(together))


def _cell(rows: Sequence[PostedRow], noise: float) -> PostedCell:
    by_sender: dict[str, list[float]] = {}
    for row in rows:
        off = _log(row.measured) - _log(row.expected)
        by_sender.setdefault(row.sender, []).append(min(max(off, -FURTHEST), FURTHEST))
    several = [np.sort(np.array(values)) for _, values in sorted(by_sender.items())]
    weights = np.array([len(values) / (1 + (len(values) - 1) * ALIKE) for values in several])
    values = np.concatenate(several)
    each = np.concatenate([np.full(len(one), weight / len(one)) for one, weight in zip(several, weights, strict=True)])
    off, usual = _location(values, each, noise)
    strange = np.minimum(np.abs(values - off), OUTLIER * usual)
    total = float(weights.sum())
    scatter = math.sqrt((AS_NOISE * noise**2 + float((each * strange**2).sum())) / (AS_NOISE + total))
    first = min(rows, key=lambda row: (row.expected, sorted(row.beside.items())))
    beside = {who: weight / first.length for who, weight in first.beside.items()}
    expected = float(np.mean(np.sort([_log(row.expected) for row in rows])))
    return PostedCell(first.victim, beside, first.place, expected, off, total, scatter, len(rows), first.apart)


def _location(values: Floats, weights: Floats, noise: float) -> tuple[float, float]:
    """The weighted Huber estimate of location, and the scale that it took for usual."""
    order = np.argsort(values, kind="stable")
    middle = _weighted_median(values[order], weights[order])
    gaps = np.abs(values - middle)
    order = np.argsort(gaps, kind="stable")
    usual = max(noise, 1.4826 * _weighted_median(gaps[order], weights[order]))
    at = middle
    for _ in range(50):
        gap = np.abs(values - at)
        trust = weights * np.minimum(1.0, HUBER * usual / np.maximum(gap, 1e-12))
        new = float((trust * values).sum() / trust.sum())
        if abs(new - at) < 1e-9:
            break
        at = new
    return at, usual


def _weighted_median(values: Floats, weights: Floats) -> float:
    """Of sorted values."""
    reached = np.cumsum(weights) / weights.sum()
    return float(values[min(int(np.searchsorted(reached, 0.5 - 1e-12)), len(values) - 1)])


def _log(ratio: float) -> float:
    return math.log(max(ratio, LEAST_RATIO))
