"""What would make another host the first: a neighbour less, or a resource without limit; said only where it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import Reason
from advisor.explanation.candidate_arrays import CandidateArrays
from advisor.explanation.losses import Loss
from advisor.explanation.mechanisms import NAMES
from advisor.scheduling.scoring import PIN_GAIN, Scores, Waiting, score
from models.arrays import Bools, Floats, Ints
from models.data.scene import HOST_NUMBERS, SceneBatch, stack
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, BandArrays, InterferencePrediction

TRIED = 5  # candidates behind the first: each costs as much as three scenes
AHEAD = 0.0005  # of the score: less is not seen in the answer
UNLIMITED = {"disk": "disk_mb_s", "memory": "mem_bw_mb_s"}  # by what is known of the host
_PLENTY = 1e12  # MB/s


@dataclass(frozen=True, slots=True)
class _Change:
    """One thing that is taken away on candidate `at`: the neighbour in a slot, or the limit of a resource."""

    at: int
    slot: int | None
    resource: str


def counterfactuals(shown: CandidateArrays, losses: Sequence[Sequence[Loss]]) -> tuple[tuple[Reason, ...], ...]:
    """For each of the first few candidates behind the first, what would put it there; () where nothing tried does.

    Tried are the limit of the resource that costs most there (link, disk, memory bandwidth) and the neighbour that
    stands behind that. A neighbour's absence is predicted; a limit's absence changes the prior, and every figure of the
    answer by as much as the prior's changes. The pinning may be chosen anew then, which cannot make it worse by more
    than what a pin must gain.
    """
    changes = [
        change
        for at in range(1, min(len(shown.hosts), 1 + TRIED))
        if losses[at] and not shown.changed(at)  # what the ladder has set would be chosen anew
        for change in _changes(shown, at, losses[at][0])
    ]
    found: list[list[Reason]] = [[] for _ in shown.hosts]
    for change, reached, low in _carried_out(shown, changes):
        if reached > float(shown.scores.score[0]) + AHEAD:
            found[change.at].append(_reason(shown, change, low))
    return tuple(tuple(one) for one in found)


def _changes(shown: CandidateArrays, at: int, most: Loss) -> list[_Change]:
    found = []
    if most.resource == "nic" or most.resource in UNLIMITED:
        found.append(_Change(at, None, most.resource))
    newcomer = shown.scenes.slots - 1
    slot = most.presser if most.presser != newcomer else most.victim
    if slot is not None and slot != newcomer and shown.involved(at)[slot].id not in shown.beside:
        found.append(_Change(at, slot, most.resource))
    return found


def _carried_out(shown: CandidateArrays, changes: Sequence[_Change]) -> list[tuple[_Change, float, float]]:
    """Every change with the score that its host reaches at least, and the expected T/B of its worst-off then."""
    found = []
    for resources in (True, False):
        group = [change for change in changes if (change.slot is None) == resources]
        if group:
            found += _scored(shown, group, resources=resources)
    return sorted(found, key=lambda one: changes.index(one[0]))


def _scored(
    shown: CandidateArrays, changes: Sequence[_Change], *, resources: bool
) -> list[tuple[_Change, float, float]]:
    at = np.array([change.at for change in changes])
    now = shown.scenes.take(at)
    changed = _without(now, changes)
    free = changed.affinity.copy()
    free[:, -1] = np.arange(free.shape[2]) < changed.pcpus[:, None]
    absent = changed.present.copy()
    absent[:, -1] = False
    asked = stack([changed, replace(changed, affinity=free), replace(changed, present=absent)])
    slowest = _limits(shown, at, "max_latency_ratio")
    minded = not np.isnan(slowest).all()
    targets = TARGETS[: 2 if minded else 1]
    if resources:
        prediction = _moved(shown, at, stack([now, now, replace(now, present=absent)]), asked, targets)
    else:
        prediction = shown.predictor.predict(asked, targets)
    count = len(changes)
    before, waited = (
        np.where(absent, band.expected[2 * count :], 1.0) for band in (prediction.throughput, prediction.latency)
    )
    scores = score(
        _first(prediction, 2 * count),
        asked.present[: 2 * count],
        np.tile(before, (2, 1)),
        np.tile(_limits(shown, at, "min_throughput_ratio"), (2, 1)),
        np.tile(_used(shown, changes), 2),
        shown.objective,
        Waiting(np.tile(slowest, (2, 1)), np.tile(waited, (2, 1))) if minded else None,
    )
    fine = ~(scores.breaks_newcomer | scores.breaks_neighbour)
    pinned = (now.affinity[:, -1] != free[:, -1]).any(axis=1) & (shown.newcomer.settings.pinning is None)
    expected = prediction.throughput.expected[:count]
    worst = np.where(changed.present, expected / before, np.inf).argmin(axis=1)
    return [
        (change, _at_least(scores, fine, row, row + count, pinned=bool(pinned[row])), float(expected[row, worst[row]]))
        for row, change in enumerate(changes)
    ]


def _at_least(scores: Scores, fine: Bools, chosen: int, free: int, *, pinned: bool) -> float:
    """The score that is reached whichever pinning is chosen then; -inf where a limit would break."""
    value, expected = scores.score, scores.expected
    if not pinned:
        return float(value[chosen]) if fine[chosen] else -np.inf
    gain = min(value[chosen] - value[free], expected[chosen] - expected[free]) - PIN_GAIN
    reached = [float(value[free] + gain)] if fine[chosen] else []
    return max([*reached, float(value[free])] if fine[free] else reached, default=-np.inf)


def _without(scenes: SceneBatch, changes: Sequence[_Change]) -> SceneBatch:
    """Scene i without what change i takes away."""
    present, numbers = scenes.present.copy(), scenes.host_numbers.copy()
    told = {name: getattr(scenes, name).copy() for name in UNLIMITED.values()}
    for row, change in enumerate(changes):
        if change.slot is not None:
            present[row, change.slot] = False
        elif change.resource == "nic":
            numbers[row, HOST_NUMBERS.index("nic_mbit")] = np.nan
        else:
            told[UNLIMITED[change.resource]][row] = _PLENTY
    return replace(scenes, present=present, host_numbers=numbers, **told)


def _moved(
    shown: CandidateArrays, at: Ints, now: SceneBatch, then: SceneBatch, targets: Sequence[str]
) -> InterferencePrediction:
    """The answer's figures for candidates `at` (chosen pinning, the same, without the newcomer), each moved by what
    the prior moves from scenes `now` to `then`; latency is the prior's."""
    prior = PriorPredictor()
    was, becomes = prior.predict(now, TARGETS[:1]), prior.predict(then, targets)
    told, before = shown.prediction.throughput, shown.before[at]
    expected, lower, upper = (
        np.concatenate([own[at], own[at], before]) * later / former
        for own, later, former in (
            (told.expected, becomes.throughput.expected, was.throughput.expected),
            (told.lower, becomes.throughput.lower, was.throughput.lower),
            (told.upper, becomes.throughput.upper, was.throughput.upper),
        )
    )
    return replace(becomes, throughput=BandArrays(expected, lower, upper))


def _rows(band: BandArrays, rows: Ints) -> BandArrays:
    return BandArrays(band.expected[rows], band.lower[rows], band.upper[rows])


def _first(prediction: InterferencePrediction, count: int) -> InterferencePrediction:
    rows = np.arange(count)
    throughput, latency, jitter = (
        _rows(band, rows) for band in (prediction.throughput, prediction.latency, prediction.jitter)
    )
    return InterferencePrediction(throughput, latency, jitter, prediction.outside[:count])


def _limits(shown: CandidateArrays, at: Ints, name: str) -> Floats:
    """`min_throughput_ratio` or `max_latency_ratio` of everybody on candidates `at`, nan = none; (C, N)."""
    limits = np.full((len(at), shown.scenes.slots), np.nan)
    for row, candidate in enumerate(at):
        for slot, one in shown.involved(int(candidate)).items():
            if (limit := getattr(one, name)) is not None:
                limits[row, slot] = limit
    return limits


def _used(shown: CandidateArrays, changes: Sequence[_Change]) -> Floats:
    """vCPUs promised over pCPUs on the host of every change."""
    used = [
        sum(one.vcpus for slot, one in shown.involved(change.at).items() if slot != change.slot)
        / shown.hosts[change.at].pcpus
        for change in changes
    ]
    return np.array(used)


def _reason(shown: CandidateArrays, change: _Change, lowest: float) -> Reason:
    host, best = shown.hosts[change.at].id, shown.hosts[0].id
    if change.slot is not None:
        name = shown.involved(change.at)[change.slot].id
        text = f"Without {name}, {host} would come before {best}: its worst-off would keep {lowest:.2f}."
        return Reason(change.resource, 0.0, text, name, kind="counterfactual", ratio=lowest)
    text = f"If the {NAMES[change.resource]} of {host} had no limit, {host} would come before {best}: "
    text += f"its worst-off would keep {lowest:.2f}."
    return Reason(change.resource, 0.0, text, kind="counterfactual", ratio=lowest)
