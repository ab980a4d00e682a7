"""How certain a candidate is, and the first beside the second: the lead, and which instances decide it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import Reason, speed
from advisor.explanation.losses import NAMES, CandidateArrays, ResourceLoss
from advisor.prediction.active import basis
from advisor.scheduling import scoring
from advisor.scheduling.scoring import EQUAL, PIN_GAIN, Scores, ceilings, more_short, score
from advisor.snapshot import ClusterSnapshot, share_promised
from advisor.snapshot.pressure import pressure_of_each
from models.arrays import Bools, Floats, Ints
from models.data.scene import HOST_NUMBERS, SceneBatch, stack
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, BandArrays, InterferencePrediction, Predictor

# The uncertainty of a candidate: whose interval decides, its origin, and what would narrow it.

NARROW_LEARNED, NARROW_PRIOR = 0.02, 0.15  # widths that are not reported; the prior's is 0.1 without contention


def uncertainty(arrays: CandidateArrays, at: int, losses: Sequence[ResourceLoss]) -> tuple[Reason, ...]:
    """One sentence on the most affected of candidate `at`; () where it is alone or its interval is narrow."""
    involved = arrays.involved(at)
    slot = arrays.worst_off(at)
    band = arrays.prediction.throughput
    low, high = float(band.lower[at, slot]), float(band.upper[at, slot])
    unknown = bool(arrays.scenes.profile[at, slot] == 0)
    guessed = arrays.predictor.origin == "analytic"
    if len(involved) < 2 or high - low < (NARROW_PRIOR if guessed else NARROW_LEARNED):
        return ()
    name, interval = involved[slot].id, f"{100 * low:.0f}-{100 * high:.0f} % of its uncontended speed"
    antagonist = next((loss.antagonist for loss in losses if loss.victim == slot and loss.antagonist is not None), None)
    measure = _measure(arrays, at, slot, antagonist)
    if unknown:
        text = f"No profile describes what {name} runs, so its interval is wide ({interval}); one would narrow it."
    elif guessed:
        text = f"No learned model answers: the analytic model predicts {interval} for {name}{measure}."
    elif arrays.prediction.outside[at, slot]:
        text = f"Nothing like {name} here was measured, so the analytic model answers for it ({interval}){measure}."
    else:
        known = arrays.prediction.basis
        rests_on = "" if known is None else f": {basis(known, at, slot).sentence}"
        text = f"{name} is at {interval}{rests_on}{measure}."
    by = None if antagonist is None else involved[antagonist].id
    return (Reason("unknown", 0.0, text, by, kind="uncertainty", ratio=arrays.ratio(at, slot)),)


def _measure(arrays: CandidateArrays, at: int, slot: int, beside: int | None) -> str:
    """The pair of workloads whose measurement would narrow the interval, where both are named."""
    involved = arrays.involved(at)
    names = [involved[slot_number].workload for slot_number in (slot, beside) if slot_number is not None]
    if len(names) < 2 or not all(names):
        return ""
    return f"; measuring {names[0]} beside {names[1]} would narrow it"


def compare(arrays: CandidateArrays) -> Reason:
    """How the first of two or more candidates compares with the second."""
    scores = arrays.scores
    best, other = arrays.hosts[0].id, arrays.hosts[1].id
    gap = float(scores.score[0] - scores.score[1])
    tied = scoring.tied(_gap(arrays), *scores.half_width[:2].tolist())
    noticed = _noticed(arrays) if tied and arrays.objective != "pack" else ""
    if arrays.reserved and 0.0 < gap <= arrays.reserved[1] - arrays.reserved[0]:
        text = f"{best} comes before {other}: few places are left, and instances that usually arrive need the one on "
        text += f"{other} more, so its score is reduced by {arrays.reserved[1]:.3f}, that of {best} by "
        text += f"{arrays.reserved[0]:.3f}."
    elif noticed:
        text = f"{best} is ahead of {other}: {noticed}."
    elif tied:
        text = f"{best} and {other} are tied: the difference of what is expected ({_gap(arrays):+.3f}) lies inside the "
        text += f"uncertainty.{_left(arrays)}"
    elif arrays.objective == "pack" and scores.score[1] > 1:
        text = f"{best} is fuller than {other} by {gap:.3f} vCPUs per pCPU, and every limit is met on both."
    elif arrays.objective == "pack" and scores.score[0] > 1:
        text = f"Every limit is met on {best} and not on {other}, where the most affected is {_worst(arrays, 1)}."
    elif arrays.objective == "limits":
        more, more_there = (1 - arrays.scores.expected[:2]).tolist()
        text = f"{best} is ahead of {other}: {more:.2f} more instances are expected below their limits there, "
        text += f"and {more_there:.2f} on {other}."
    elif arrays.objective == "total":
        text = f"{best} is ahead of {other} by {gap:.3f} in the sum of the gains and losses of all instances there."
    else:
        text = f"{best} is ahead of {other} by {gap:.3f}: the most affected on {best} is {_worst(arrays, 0)}, "
        text += f"on {other} {_worst(arrays, 1)}."
    return Reason("comparison", 0.0, text, kind="comparison")


def _noticed(arrays: CandidateArrays) -> str:
    """Whose ratio differs visibly where scores are equal: a resident that is slow already, or the new VM's answers.

    A clause, empty where nothing differs.
    """
    best, other = (arrays.hosts[at].id for at in (0, 1))
    lowest = [min(arrays.involved(at), key=lambda slot: arrays.ratio(at, slot)) for at in (0, 1)]
    here, there = (arrays.ratio(at, lowest[at]) for at in (0, 1))
    gap = float(arrays.scores.score[0] - arrays.scores.score[1])
    if not scoring.alike(here, there):
        if there > here:  # by its score, which counts what is lost, it is ahead all the same
            lowest_speeds = f"the most affected there runs at {speed(here)}, and at {100 * there:.0f} % on {other}"
            return f"its score is higher by {gap:.3f}, though {lowest_speeds}"
        victim = arrays.involved(1)[lowest[1]].id
        return f"{victim} on {other} runs at {speed(there)}, and every instance on {best} at {100 * here:.0f} % or more"
    if arrays.new_vm.service == "latency":
        here, there = (float(arrays.prediction.latency.expected[at, -1]) for at in (0, 1))
        overloaded = [arrays.overloaded(at, -1) for at in (0, 1)]
        if overloaded == [False, True]:
            return f"{arrays.new_vm.id} is overloaded on {other}, and waits × {here:.2f} on {best}"
        if not any(overloaded) and not scoring.alike(1 / here, 1 / there):
            waits = f"{arrays.new_vm.id} waits × {here:.2f} there, and × {there:.2f} on {other}"
            return f"its score is higher by {gap:.3f}, though {waits}" if here > there else waits
    return ""


def _left(arrays: CandidateArrays) -> str:
    """Why the first of two equal ones comes first: what would stay free, as a sentence after another one."""
    equal = abs(arrays.scores.score[0] - arrays.scores.score[1]) <= scoring.EQUAL
    if arrays.objective == "pack" or not equal or not arrays.headroom:
        return ""
    best, other = arrays.headroom[:2]
    if arrays.home == arrays.hosts[0].id:
        return f" {arrays.home} comes first because {arrays.new_vm.id} is there already."
    if best.one_numa_node != other.one_numa_node:
        return f" {arrays.new_vm.id} fits into one NUMA node of {arrays.hosts[0].id}, and of {arrays.hosts[1].id} not."
    (scarce, left), (scarce_there, left_there) = best.scarcest, other.scarcest
    if round(left, 2) == round(left_there, 2):
        return " The scarcest resource of both would have as much free."
    return (
        f" {arrays.hosts[0].id} comes first because more of its scarcest resource stays free: {_part(scarce, left)}, "
        f"on {arrays.hosts[1].id} {_part(scarce_there, left_there)}."
    )


def _part(resource: str, left: float) -> str:
    """What is left of the scarcest resource of a host."""
    whose = {"cpu": "of its CPUs at busy times", "nic": "of its network at busy times", "memory": "of its memory"}
    return f"{100 * left:.0f} % {whose[resource]}" if left >= 0 else f"{-100 * left:.0f} % too little {whose[resource]}"


def _gap(arrays: CandidateArrays) -> float:
    return float(arrays.scores.expected[0] - arrays.scores.expected[1])


def _worst(arrays: CandidateArrays, at: int) -> str:
    slot = arrays.worst_off(at)
    before = f" ({100 * arrays.before[at, slot]:.0f} % before)" if slot != arrays.scenes.slots - 1 else ""
    return f"{arrays.involved(at)[slot].id} with {100 * arrays.ratio(at, slot):.0f} %{before}"


# Counterfactuals: each instance without each of its strongest neighbours, and what would rank another host first.

MAX_HOSTS, MAX_RESIDENTS = 8, 12  # of a report
CELLS_AT_ONCE = 20_000  # instances in all scenes that are predicted together: about 60 MB
EVERY_PAIR = 20  # instances on a host up to which pairs are listed that lose as good as nothing
LEAST_LOSS = 0.005  # of a ratio: pairs of larger hosts that lose less are left out
MOST_CELLS = 40_000  # instances in all scenes of one host: of 200 on it every pair is examined


@dataclass(frozen=True, slots=True)
class AttributedLoss:
    """What `neighbour` costs `victim` on `host`: expected T/B as it is, and without the neighbour.

    Without the neighbour the others use more, so the losses by several neighbours do not add up to the whole loss.
    """

    host: str
    victim: str
    neighbour: str
    ratio: float
    without: float

    @property
    def taken(self) -> float:
        """The T/B that the victim would gain; negative if it is better off with the neighbour."""
        return self.without - self.ratio


def attribute_interference(
    snapshot: ClusterSnapshot, predictor: Predictor, hosts: Sequence[str]
) -> tuple[AttributedLoss, ...]:
    """The MAX_RESIDENTS most affected instances and the MAX_RESIDENTS strongest neighbours, in pairs, on each of these
    hosts, the first MAX_HOSTS of them with neighbours; in the given order."""
    positions = [place for name in hosts if (place := snapshot.index(name)) is not None]
    crowded = [place for place in positions if len(snapshot.residents[place]) > 1][:MAX_HOSTS]
    pairs: list[AttributedLoss] = []
    for place in crowded:
        scene = snapshot.scenes.take(np.array([place])).trimmed()
        ratios = predictor.predict(scene, ()).throughput.expected[0]
        chosen = np.sort(np.argsort(ratios, kind="stable")[:MAX_RESIDENTS])
        strongest = _strongest(scene, MAX_RESIDENTS)
        pairs += _pairs(snapshot, place, ratios, chosen, strongest, _without_each(scene, predictor, strongest))
    return tuple(pairs)


def on_host(snapshot: ClusterSnapshot, predictor: Predictor, place: int, ratios: Floats) -> tuple[AttributedLoss, ...]:
    """What each instance on the host at this position would gain without each of its strongest neighbours: all of them
    where MOST_CELLS allow it, else those that ask for most. On a host of more than EVERY_PAIR pairs with less than
    LEAST_LOSS are left out. `ratios` (N,) is what each has with all of them."""
    count = len(snapshot.residents[place])
    if count < 2:
        return ()
    scene = snapshot.scenes.take(np.array([place])).trimmed()
    strongest = _strongest(scene, max(MOST_CELLS // count, 1))
    least = LEAST_LOSS if count > EVERY_PAIR else 0.0
    without = _without_each(scene, predictor, strongest)
    return tuple(_pairs(snapshot, place, ratios, np.arange(count), strongest, without, least))


def _strongest(scene: SceneBatch, most: int) -> Ints:
    """The slots of the instances that ask for the largest part of any one resource, at most so many, in their order."""
    asked = np.nan_to_num(pressure_of_each(scene)[0]).max(axis=1)
    asked[~scene.present[0]] = -1.0
    strongest = np.argsort(-asked, kind="stable")[: min(most, int(scene.present.sum()))]
    return np.sort(strongest)


def _without_each(scene: SceneBatch, predictor: Predictor, absent: Ints) -> Floats:
    """Expected T/B of all without each of these slots, (A, N); only so many scenes at once as CELLS_AT_ONCE allow."""
    at_once = max(CELLS_AT_ONCE // scene.slots, 1)
    found = np.empty((len(absent), scene.slots))
    for first in range(0, len(absent), at_once):
        slots = absent[first : first + at_once]
        scenes = scene.take(np.zeros(len(slots), dtype=np.int64))
        present = scenes.present.copy()
        present[np.arange(len(slots)), slots] = False
        found[first : first + at_once] = predictor.predict(replace(scenes, present=present), ()).throughput.expected
    return found


def _pairs(
    snapshot: ClusterSnapshot,
    place: int,
    ratios: Floats,
    victims: Ints,
    absent: Ints,
    without: Floats,
    least: float = 0.0,
) -> list[AttributedLoss]:
    """The pairs of these victims and absent neighbours whose loss or gain is at least `least`."""
    host, there = snapshot.hosts[place].id, snapshot.residents[place]
    named = (np.abs(without[:, victims] - ratios[victims]) >= least) & (absent[:, None] != victims)
    return [
        AttributedLoss(
            host,
            there[victims[victim]].id,
            there[absent[row]].id,
            float(ratios[victims[victim]]),
            float(without[row, victims[victim]]),
        )
        for row, victim in np.argwhere(named).tolist()
    ]


# Counterfactuals: what would rank another host first, a neighbour less or a resource without limit.

MAX_TRIED = 5  # candidates examined behind the first; each costs three scenes
UNLIMITED = {"disk": "disk_mb_s", "memory": "mem_bw_mb_s"}  # resource: field with its capacity
_PLENTY = 1e12  # MB/s


@dataclass(frozen=True, slots=True)
class _Removal:
    """What is removed on candidate `at`: the neighbour in a slot, or the limit of a resource."""

    at: int
    slot: int | None
    resource: str


def counterfactuals(
    arrays: CandidateArrays, losses: Sequence[Sequence[ResourceLoss]]
) -> tuple[tuple[Reason, ...], ...]:
    """For each of the first few candidates behind the first, what would rank it first; () where nothing tried does.

    Tried are the limit of the resource that costs most there (link, disk, memory bandwidth) and the neighbour behind
    that. Counterfactuals re-solve the model without the neighbour. Without a limit, the prior is solved again and every
    figure of the answer changes in the prior's proportion. The pinning may be chosen again, which cannot worsen the
    score by more than a pin must gain.
    """
    changes = [
        change
        for at in range(1, min(len(arrays.hosts), 1 + MAX_TRIED))
        if losses[at] and not arrays.changed(at)  # mitigation would choose other settings
        for change in _changes(arrays, at, losses[at][0])
    ]
    reasons: list[list[Reason]] = [[] for _ in arrays.hosts]
    for change, reached, lowest in _evaluated(arrays, changes):
        if reached - (arrays.reserved[change.at] if arrays.reserved else 0.0) > float(arrays.scores.score[0]) + EQUAL:
            reasons[change.at].append(_reason(arrays, change, lowest))
    return tuple(tuple(per_candidate) for per_candidate in reasons)


def _changes(arrays: CandidateArrays, at: int, largest: ResourceLoss) -> list[_Removal]:
    removals = []
    if largest.resource == "nic" or largest.resource in UNLIMITED:
        removals.append(_Removal(at, None, largest.resource))
    new_vm = arrays.scenes.slots - 1
    slot = largest.antagonist if largest.antagonist != new_vm else largest.victim
    if slot is not None and slot != new_vm and arrays.involved(at)[slot].id not in arrays.beside:
        removals.append(_Removal(at, slot, largest.resource))
    return removals


def _evaluated(arrays: CandidateArrays, changes: Sequence[_Removal]) -> list[tuple[_Removal, float, float]]:
    """Every removal with the score that its host reaches at least, and the expected T/B of its most affected."""
    results = []
    for resources in (True, False):
        group = [change for change in changes if (change.slot is None) == resources]
        if group:
            results += _scored(arrays, group, resources=resources)
    return sorted(results, key=lambda result: changes.index(result[0]))


def _scored(
    arrays: CandidateArrays, changes: Sequence[_Removal], *, resources: bool
) -> list[tuple[_Removal, float, float]]:
    at = np.array([change.at for change in changes])
    now = arrays.scenes.take(at)
    changed = _without(now, changes)
    free = changed.affinity.copy()
    free[:, -1] = changed.shared
    absent = changed.present.copy()
    absent[:, -1] = False
    trials = stack([changed, replace(changed, affinity=free), replace(changed, present=absent)])
    slowest, shorts = (_limits(arrays, at, name) for name in ("max_latency_ratio", "max_time_short"))
    latency_limited = not np.isnan(slowest).all()
    targets = TARGETS[: 2 if latency_limited else 1]
    if resources:
        prediction = _shifted_by_prior(arrays, at, stack([now, now, replace(now, present=absent)]), trials, targets)
    else:
        prediction = arrays.predictor.predict(trials, targets)
    count = len(changes)
    without = prediction.take(np.tile(np.arange(2 * count, 3 * count), 2))
    there = np.tile(absent, (2, 1))
    before = np.where(there, without.throughput.expected, 1.0)
    after = prediction.take(slice(2 * count))
    scores = score(
        after,
        trials.present[: 2 * count],
        before,
        np.tile(_limits(arrays, at, "min_throughput_ratio"), (2, 1)),
        np.tile(_used(arrays, changes), 2),
        arrays.objective,
        ceilings(after, without, there, np.tile(slowest, (2, 1)), np.tile(shorts, (2, 1))),
        np.where(there, without.throughput.expected - without.throughput.lower, 0.0),
        more_short(after.time_short(), np.where(there, without.time_short(), 0.0), trials.profiled[: 2 * count]),
    )
    within_limits = ~(scores.breaks_new_vm | scores.breaks_neighbour)
    pinned = (now.affinity[:, -1] != free[:, -1]).any(axis=1) & (arrays.new_vm.settings.pinning is None)
    expected = prediction.throughput.expected[:count]
    worst = np.where(changed.present, expected / before[:count], np.inf).argmin(axis=1)
    return [
        (
            change,
            _at_least(scores, within_limits, row, row + count, pinned=bool(pinned[row])),
            float(expected[row, worst[row]]),
        )
        for row, change in enumerate(changes)
    ]


def _at_least(scores: Scores, fine: Bools, chosen: int, free: int, *, pinned: bool) -> float:
    """The score reached whichever pinning is chosen then; -inf where a limit would be violated."""
    value, expected = scores.score, scores.expected
    if not pinned:
        return float(value[chosen]) if fine[chosen] else -np.inf
    gain = min(value[chosen] - value[free], expected[chosen] - expected[free]) - PIN_GAIN
    reached = [float(value[free] + gain)] if fine[chosen] else []
    return max([*reached, float(value[free])] if fine[free] else reached, default=-np.inf)


def _without(scenes: SceneBatch, changes: Sequence[_Removal]) -> SceneBatch:
    """Scene i without what removal i takes away."""
    present, numbers = scenes.present.copy(), scenes.host_numbers.copy()
    columns = {name: getattr(scenes, name).copy() for name in UNLIMITED.values()}
    for row, change in enumerate(changes):
        if change.slot is not None:
            present[row, change.slot] = False
        elif change.resource == "nic":
            numbers[row, HOST_NUMBERS.index("nic_mbit")] = np.nan
        else:
            columns[UNLIMITED[change.resource]][row] = _PLENTY
    return replace(scenes, present=present, host_numbers=numbers, **columns)


def _shifted_by_prior(
    arrays: CandidateArrays, at: Ints, now: SceneBatch, then: SceneBatch, targets: Sequence[str]
) -> InterferencePrediction:
    """The answer's throughput for candidates `at`, scaled by the change of the prior from `now` to `then`.

    The rows are the chosen pinning, the same again, and without the new VM; latency is the prior's.
    """
    prior = PriorPredictor()
    prior_before, prior_after = prior.predict(now, TARGETS[:1]), prior.predict(then, targets)
    own, then_own, now_own = arrays.prediction.throughput, prior_after.throughput, prior_before.throughput
    here = slice(2 * len(at))
    expected = np.concatenate([own.expected[at], own.expected[at], arrays.before[at]])
    expected = expected * then_own.expected / now_own.expected
    edges = []
    for edge in ("lower", "upper"):
        mine, later, former = (getattr(band, edge) for band in (own, then_own, now_own))
        # without the new VM the answer has no range: it is as wide as the prior's
        moved = expected * later / then_own.expected
        moved[here] = np.concatenate([mine[at], mine[at]]) * later[here] / former[here]
        edges.append(moved)
    return replace(prior_after, throughput=BandArrays(expected, *edges))


def _limits(arrays: CandidateArrays, at: Ints, name: str) -> Floats:
    """A limit, by the name of its field, of every instance on candidates `at`, nan = none; (C, N)."""
    limits = np.full((len(at), arrays.scenes.slots), np.nan)
    for row, candidate in enumerate(at):
        for slot, instance in arrays.involved(int(candidate)).items():
            if (limit := getattr(instance, name)) is not None:
                limits[row, slot] = limit
    return limits


def _used(arrays: CandidateArrays, changes: Sequence[_Removal]) -> Floats:
    """`share_promised` of the host of every removal."""
    used = [
        share_promised(
            arrays.hosts[change.at],
            [instance for slot, instance in arrays.involved(change.at).items() if slot != change.slot],
        )
        for change in changes
    ]
    return np.array(used)


def _reason(arrays: CandidateArrays, change: _Removal, lowest: float) -> Reason:
    host, best = arrays.hosts[change.at].id, arrays.hosts[0].id
    if change.slot is not None:
        name = arrays.involved(change.at)[change.slot].id
        text = f"Without {name}, {host} would come before {best}: its most affected instance would run at "
        text += f"{speed(lowest)}."
        return Reason(change.resource, 0.0, text, name, kind="counterfactual", ratio=lowest)
    text = f"If the {NAMES[change.resource]} of {host} had no limit, {host} would come before {best}: "
    text += f"its most affected instance would run at {speed(lowest)}."
    return Reason(change.resource, 0.0, text, kind="counterfactual", ratio=lowest)
