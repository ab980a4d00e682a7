"""Scores and ranks candidate scenes, where all instances count alike, and the score of a VM; arrays only."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.domain import NO_SCORES, SCORE_BUCKETS, Objective, ScoreSummary
from advisor.rounding import SLACK
from models.arrays import Bools, Floats, Ints
from models.physics import normal
from models.prediction import InterferencePrediction

KEPT = 0.9  # a ratio counts as kept at this T/B where an instance names no limit of its own
HALF = 1.645  # standard deviations of half a 90 % interval
LEAST_SPREAD = 0.01  # of a ratio: no prediction is surer, so that chances of neighbours beside a limit differ
HARM_COUNTS = 0.01  # of the objective `limits`: of hosts where as many are expected below, the less harmed is better
# Of all losses beside the worst one: the most affected decides, but dozens that lose a little each are harm, too. The
# same part for every host, or a host with few residents would seem a place where they may be harmed.
OTHERS_COUNT = 0.3
SHORT_COUNTS = 0.5  # of what is lost: the time in which an instance is short; the rest is the part of the speed lost
# A score is a lower bound that holds two times in three: 0.25 of the half width of a 90 % interval is 0.41 standard
# deviations. A bolder one orders by the widths of intervals where expectations differ by little: decision 8.
CAUTION = 0.25
EQUAL = 0.0005  # scores that differ by no more are equal; of losses as small as this many add up to one that hurts
NOTICED = 0.05  # of a ratio: hosts where an instance's differs by more are not tied
PIN_GAIN = 0.02  # a pinning must promise this much more than leaving the scheduler free: pins cost flexibility


Loss = TypeVar("Loss", float, Floats)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A kind of limit from above in S scenes: of latency ratios, or of the part of the time short of CPU.

    `highest` (S, N) is the most that each accepts, nan = any; `after` and `before` (S, N) are what is expected with the
    new VM and without it, as alone for the new VM itself; nan = not known, which breaks nothing.
    """

    highest: Floats
    after: Floats
    before: Floats


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of S scenes.

    `score` (S,) ranks the candidates, a lower bound; `expected` and `half_width` (S,) describe the same quantity for
    ties; `combined` (S,) is sum(T/B); `breaks_new_vm`, `breaks_neighbour` (S,) = an expected ratio violates a limit
    of throughput, latency or time short that held before.
    """

    score: Floats
    expected: Floats
    half_width: Floats
    combined: Floats
    breaks_new_vm: Bools
    breaks_neighbour: Bools

    def take(self, scenes: Ints) -> Scores:
        """The scores of these scenes."""
        return Scores(*(getattr(self, field.name)[scenes] for field in fields(self)))

    def less(self, reserved: Floats) -> Scores:
        """The same with a part of each score, (S,), kept for others."""
        return replace(self, score=self.score - reserved, expected=self.expected - reserved)


def cautious_loss(expected: Floats, half: Floats, before: Floats | float = 1.0) -> Floats:
    """What each loses of its T/B `before`, by a lower bound of what it keeps; `half` is half the 90 % interval."""
    return np.asarray(1 - (expected / before - CAUTION * half / before))


def losses(
    expected: Floats, half: Floats, before: Floats | float = 1.0, more_short: Floats | float | None = None
) -> Floats:
    """What each loses: of its T/B (`cautious_loss`), and of its time, as `more_short` of it is spent short of CPU.

    Where that is not known, None or nan, T/B alone counts.
    """
    lost = cautious_loss(expected, half, before)
    if more_short is None:
        return lost
    both = (1 - SHORT_COUNTS) * lost + SHORT_COUNTS * more_short
    return np.asarray(np.where(np.isnan(both), lost, both))


def chance_below(expected: Floats, half: Floats, limits: Floats, before: Floats | float = 1.0) -> Floats:
    """By how much the chance grows that each is below its limit, or below KEPT where that is nan; (S, N).

    `half` is half the 90 % interval, of `before`, too: what was doubtful already is not made worse by a placement. An
    instance that is below already costs nothing more.
    """
    spread = np.maximum(half / HALF, LEAST_SPREAD)
    least = np.where(np.isnan(limits), KEPT, limits)
    return np.asarray(normal.below((least - expected) / spread) - normal.below((least - before) / spread))


def harm(most: Loss, total: Loss) -> Loss:
    """What counts against a placement: the greatest loss, and a part of all others."""
    return most + OTHERS_COUNT * (total - most)


def score(
    prediction: InterferencePrediction,
    present: Bools,
    before: Floats,
    limits: Floats,
    used_share: Floats,
    objective: Objective,
    ceilings: Sequence[Ceiling] = (),
    half_before: Floats | float = 0.0,
    more_short: Floats | None = None,
) -> Scores:
    """Score S scenes whose last slot is the new VM.

    `present` (S, N); `before` (S, N) expected T/B of each resident without the new VM, 1 for the new VM itself,
    so that after/before is what this placement does to each; `half_before` (S, N) half the interval of that, 0 for
    the new VM: doubt that was there already does not count against a placement; `limits` (S, N) lowest T/B each
    accepts, nan = none; `used_share` (S,) vCPUs promised over pCPUs after the placement, without isolated ones, for
    `pack`; `ceilings` are their other limits; `more_short` (S, N) by how much the part of the time grows in which each
    is short of CPU.

    worst: the most harmed of all decides, by a lower bound, and of what the others lose OTHERS_COUNT.
    total: what the cloud gains, the new VM's ratio minus every instance's loss.
    limits: 1 minus how many more instances are expected to be below their limits, KEPT where one has none.
    pack: the fullest host on which every ratio is kept; hosts where one is not kept come after, by `worst`.
    """
    throughput = prediction.throughput
    ratio_kept = np.where(present, throughput.expected / before, np.inf)
    half = np.where(present, throughput.expected - throughput.lower, 0.0)  # of T/B
    added = np.maximum(half - half_before, 0.0)
    worst_at = ratio_kept.argmin(axis=1)
    rows = np.arange(len(ratio_kept))
    if objective == "total":
        gained = np.where(present, throughput.expected - before, 0.0).sum(axis=1)
        expected = 1.0 + gained
        half_width = np.sqrt((half**2).sum(axis=1))  # errors of different instances are taken as independent
        value = expected - CAUTION * np.sqrt((added**2).sum(axis=1))
    else:
        expected = ratio_kept[rows, worst_at]
        half_width = half[rows, worst_at] / before[rows, worst_at]
        loss = np.where(present, losses(throughput.expected, added, before, more_short), 0.0)
        value = 1 - harm(loss.max(axis=1), loss.sum(axis=1))
    if objective == "limits":
        more = np.where(present, chance_below(throughput.expected, half, limits, before), 0.0)
        expected = 1 - more.sum(axis=1)
        half_width = HALF * np.sqrt((more * (1 - more)).clip(0.0).sum(axis=1))  # of a number of independent events
        value = expected - HARM_COUNTS * (1 - value)
    if objective == "pack":
        needed = np.where(np.isnan(limits), KEPT, limits)
        all_kept = np.where(present, throughput.expected >= np.minimum(needed, before) - SLACK, True).all(axis=1)
        value = np.where(all_kept, 1.0 + used_share, value)
        expected = np.where(all_kept, 1.0 + used_share, expected)
        half_width = np.where(all_kept, 0.0, half_width)
    under = broken(throughput.expected, present, before, limits, ceilings)
    return Scores(
        score=value,
        expected=expected,
        half_width=half_width,
        combined=np.where(present, throughput.expected, 0.0).sum(axis=1),
        breaks_new_vm=under[:, -1],
        breaks_neighbour=np.asarray(under[:, :-1].any(axis=1)),
    )


def ceilings(
    after: InterferencePrediction, before: InterferencePrediction, occupied: Bools, waits: Floats, shorts: Floats
) -> tuple[Ceiling, Ceiling]:
    """The limits of latency, `waits`, and of time short, `shorts`, of S scenes; all (S, N).

    `occupied` says which slots have an instance without the new VM.
    """
    return (
        Ceiling(waits, after.latency.expected, np.where(occupied, before.latency.expected, 1.0)),
        Ceiling(shorts, after.time_short(), np.where(occupied, before.time_short(), 0.0)),
    )


def more_short(after: Floats, before: Floats, profiled: Bools) -> Floats:
    """By how much the part of the time grows in which each is short of CPU; (S, N).

    nan, which does not count, for who is `profiled`: what its speed becomes is then known better.
    """
    return np.where(profiled, np.nan, np.maximum(after - before, 0.0))


def broken(expected: Floats, present: Bools, before: Floats, limits: Floats, others: Sequence[Ceiling]) -> Bools:
    """Which limits that held before are violated by expectation, as in `score`; (S, N)."""
    violated = np.zeros(present.shape, dtype=bool)
    if not np.isnan(limits).all():
        violated |= present & (expected < limits - SLACK) & (before >= limits - SLACK)
    for ceiling in others:
        if not np.isnan(ceiling.highest).all():
            highest = ceiling.highest + SLACK
            violated |= present & (ceiling.after > highest) & (ceiling.before <= highest)
    return violated


def choose_options(scores: Scores, options: int, pins: Bools, usable: Bools) -> Ints:
    """The best option per host, (H,); `scores` holds options x hosts scenes, option by option.

    An option that violates no limit beats one that does; then the higher score wins. A pin must gain PIN_GAIN in the
    score and in expectation: a narrower interval alone is no reason to pin. `pins` is by option, (O,), or by option and
    host, (O, H): True where a command is needed.
    """
    hosts = len(scores.score) // options
    value, expected = (array.reshape(options, hosts) for array in (scores.score, scores.expected))
    free = usable.reshape(options, hosts) & ~np.broadcast_to(pins.reshape(options, -1), (options, hosts))
    best = np.where(free, value, -np.inf).argmax(axis=0)
    at = (best, np.arange(hosts))
    gain = np.minimum(value - value[at], expected - expected[at]) - PIN_GAIN
    value = np.where(~free & free.any(axis=0), value[at] + gain, value)
    fine = ~(scores.breaks_new_vm | scores.breaks_neighbour).reshape(options, hosts)
    value = np.where(usable.reshape(options, hosts), value + 100.0 * fine, -np.inf)
    return np.asarray(value.argmax(axis=0), dtype=np.int64)


def order(score: Floats, names: NDArray[np.generic], *then: Floats) -> Ints:
    """Positions from best to worst; scores equal to nine digits are ordered by `then`, (H,) each, and by host id
    (rule 3).

    `names` (H,) are ids, or numbers in the order of ids.
    """
    return np.asarray(np.lexsort((names, *(-key for key in reversed(then)), -np.round(score, 9))))


def grouped(values: Floats, width: float) -> Floats:
    """The highest value of the group that each is in, (N,): from the highest on, a group has all within `width` of it.

    Values that cannot be distinguished become equal. nan stays nan.
    """
    by_value = np.argsort(-values, kind="stable")
    falling, leaders = values[by_value], np.full(len(values), np.nan)
    rising = (-falling[: int(np.isfinite(values).sum())]).tolist()  # few groups: bisecting a list costs less
    start = 0
    while start < len(rising):
        end = bisect_right(rising, width + rising[start], start)
        leaders[by_value[start:end]] = falling[start]
        start = end
    return leaders


def tied(gap: float, one: float, other: float) -> bool:
    """Whether the gap between two expectations, to nine digits, lies within their half widths (independent errors)."""
    return round(abs(gap), 9) <= math.hypot(one, other)


def alike(one: float, other: float) -> bool:
    """Whether the difference is not noticeable of two ratios; true where one is unknown (nan)."""
    return not abs(one - other) > NOTICED


# The score of a VM: how much of what it could do alone it can do now, 0-100; arrays only.
#
#     score = 100 * cpu * devices * memory
#
# The product over resources, each as achieved over ideal throughput, is the idea of the VM DRS score of vSphere 7
# (VMware, "Load Balancing Performance of DRS in vSphere 7.0", 2020), and so are its five buckets.
#
# - cpu: CPU delivered, run / (run + wait), measured in the last window of five minutes, else predicted;
# - devices: what the driver domain, networks, disks and caches leave of the speed beyond that: relative throughput over
#   CPU delivered, both predicted, at most 1;
# - memory: the part of the time in which the VM does not stall for memory (PSI memory, `some`); 1 where not measured.
#
# With predictions alone the score is 100 * min(CPU delivered, relative throughput) * memory. A measured CPU share takes
# the place of the predicted one, and what is predicted of devices stays.

_WIDTH = 100.0 / len(SCORE_BUCKETS)


@dataclass(frozen=True, slots=True)
class ScoreFactors:
    """The factors of N VMs, (N,) each within 0-1; nan of `cpu` and `memory` = not known, which counts as 1."""

    cpu: Floats
    devices: Floats
    memory: Floats

    @property
    def scores(self) -> Floats:
        """(N,), 0-100."""
        return np.asarray(100.0 * np.nan_to_num(self.cpu, nan=1.0) * self.devices * np.nan_to_num(self.memory, nan=1.0))


def score_factors(throughput: Floats, delivered: Floats, measured: Floats, stalled: Floats) -> ScoreFactors:
    """The factors of N VMs by their predicted relative throughput and CPU delivered (nan = no demand is known), their
    measured CPU delivered (nan = not measured), and the part of the time stalled for memory (nan = not measured)."""
    kept = np.clip(throughput, 0.0, 1.0)
    predicted = np.clip(delivered, 0.0, 1.0)
    cpu = np.where(np.isnan(measured), predicted, np.clip(measured, 0.0, 1.0))
    # Where no demand is known, what is predicted for CPUs is in the throughput, and is not taken off twice.
    share = np.nan_to_num(np.where(np.isnan(predicted), cpu, predicted), nan=1.0)
    devices = np.minimum(np.divide(kept, share, out=np.ones_like(kept), where=share > 0), 1.0)
    return ScoreFactors(cpu, devices, 1.0 - np.clip(stalled, 0.0, 1.0))


def score_summary(scores: Floats, measured: Bools) -> ScoreSummary:
    """Counts by bucket, mean and lowest of N scores; `measured` (N,) = by a measured CPU share."""
    if not scores.size:
        return NO_SCORES
    buckets = np.minimum((scores / _WIDTH).astype(np.int64), len(SCORE_BUCKETS) - 1)
    counts = np.bincount(buckets, minlength=len(SCORE_BUCKETS))
    return ScoreSummary.of(counts.tolist(), float(scores.mean()), float(scores.min()), int(measured.sum()))
