"""Equivalence classes of hosts: which hosts are alike for a request, and one prediction per class, cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Host, PlacementRequest
from advisor.prediction.active import PredictionCache
from advisor.scheduling import pinning, scoring
from advisor.scheduling.pinning import (
    FREE,
    KEPT,
    NAMES,
    PinningOption,
    latency_limits_of,
    limits_of,
    new_vm_slot,
    rows_by_host,
    short_limits_of,
    used_share,
    without_new_vm,
)
from advisor.snapshot import ClusterSnapshot, layout
from models.arrays import Bools, Floats, Ints, Once
from models.data.scene import ProfileTable, SceneBatch
from models.data.scene import stack as stack_scenes
from models.physics.prior import pins_matter
from models.prediction import BandArrays, InterferencePrediction, Predictor, correction_of, unasked

# Cells (scenes x slots x slots) predicted at a time; they bound the memory of a prediction.
MAX_CELLS = 150_000
FIGURES = 4  # of each instance: expected T/B, its lower bound, expected latency, part of the time short of CPU
MOST_PINNED = 16  # hosts with pinnings that a learned model predicts, beside those where a limit is violated
LEFT_OUT = np.inf  # instead of the prediction of a pinning that could not be chosen


@dataclass(frozen=True, slots=True)
class PlacementQuestion:
    """The instance to place, the cloud, and the predictor; `table` and `row` as from `new_vm.profile_row`."""

    snapshot: ClusterSnapshot
    request: PlacementRequest
    predictor: Predictor
    table: ProfileTable
    row: int | None
    once: Once = field(default_factory=Once, init=False, repr=False, compare=False)

    @property
    def slots(self) -> int:
        """N: the slots of the residents, and the last one for the new VM."""
        return self.snapshot.scenes.slots + 1


@dataclass(frozen=True, slots=True)
class HostClasses:
    """G classes of hosts; hosts of a class are alike in everything that a decision considers.

    `hosts` (G,) has the position of one host of each class, `of` (H,) the class of each host. `present` (G, N) includes
    the new VM; `limits`, `waits` and `shorts` (G, N) are the lowest T/B, the highest latency ratio and the longest
    part of the time short of CPU that each accepts, nan = any; `used` (G,) is vCPUs per pCPU;
    `profiled` (G, N) is whose workload was measured.
    """

    hosts: Ints
    of: Ints
    present: Bools
    limits: Floats
    waits: Floats
    shorts: Floats
    used: Floats
    profiled: Bools

    def __len__(self) -> int:
        return len(self.hosts)


@dataclass(frozen=True, slots=True)
class ClassPredictions:
    """Predictions for G classes under O options.

    `expected`, `lower`, `latency` and `short` (O, G, N) are expected T/B, its lower bound, expected latency and the
    part of the time short of CPU, nan where an option is not usable or no instance asks for latency. `before`,
    `latency_before` and `short_before` (G, N) are without the new VM, as alone for itself, and `half_before` is
    half the interval of the first, 0 for itself. `options` are names; `usable` as in PinningOption, and `pins` (O, G)
    is where an option needs a command.
    """

    options: tuple[str, ...]
    pins: Bools
    usable: Bools
    expected: Floats
    lower: Floats
    latency: Floats
    short: Floats
    before: Floats
    half_before: Floats
    latency_before: Floats
    short_before: Floats

    def more_short(self, classes: HostClasses, option: Ints, of: Ints) -> Floats:
        """As scoring.more_short, of the classes `of` under these options, both (S,); (S, N)."""
        return scoring.more_short(self.short[option, of], self.short_before[of], classes.profiled[of])

    def ceilings(self, classes: HostClasses, option: Ints, of: Ints) -> tuple[scoring.Ceiling, ...]:
        """The limits from above of S scenes: of the classes `of` under these options, both (S,)."""
        return (
            scoring.Ceiling(classes.waits[of], self.latency[option, of], self.latency_before[of]),
            scoring.Ceiling(classes.shorts[of], self.short[option, of], self.short_before[of]),
        )


def host_classes(question: PlacementQuestion, hosts: Ints) -> HostClasses:
    """Group the hosts at these positions, (H,), into classes."""
    snapshot, request = question.snapshot, question.request
    limits = limits_of(snapshot, hosts, request.instance, question.slots)
    waits = latency_limits_of(snapshot, hosts, request.instance, question.slots)
    shorts = short_limits_of(snapshot, hosts, request.instance, question.slots)
    fingerprint_rows: NDArray[Any] = snapshot.fingerprints[hosts]
    own_seats = snapshot.where(request.instance.id)
    known_limits = [rows[:, :-1] for rows in (limits, waits, shorts) if not np.isnan(rows[:, :-1]).all()]
    if known_limits or own_seats:
        seat = np.full((len(hosts), 1), -1.0)
        for host, slot in own_seats:
            seat[hosts == host] = slot
        rows = np.concatenate([seat, *known_limits], axis=1)
        parts = [fingerprint_rows.view(np.uint8).reshape(len(hosts), -1), np.ascontiguousarray(rows).view(np.uint8)]
        joined = np.concatenate(parts, axis=1)
        fingerprint_rows = joined.view(np.dtype((np.void, joined.shape[1])))[:, 0]
    each = fingerprint_rows.view(np.dtype((np.void, fingerprint_rows.itemsize))).tolist()
    class_numbers = dict(zip(dict.fromkeys(each), count()))
    of = np.fromiter(map(class_numbers.__getitem__, each), dtype=np.int64, count=len(each))
    first = np.flatnonzero(np.diff(np.maximum.accumulate(of), prepend=-1))
    chosen = hosts[first]
    present = np.concatenate([snapshot.scenes.present[chosen], np.ones((len(chosen), 1), dtype=bool)], axis=1)
    for host, slot in own_seats:
        present[chosen == host, slot] = False
    return HostClasses(
        hosts=chosen,
        of=of,
        present=present,
        limits=limits[first],
        waits=waits[first],
        shorts=shorts[first],
        used=used_share(snapshot, request, chosen),
        profiled=np.concatenate([snapshot.scenes.profiled[chosen], _profiled(question, chosen)], axis=1),
    )


def _profiled(question: PlacementQuestion, hosts: Ints) -> Bools:
    """Whether the new VM's workload is known on each host, (G, 1)."""
    rows = rows_by_host(question.snapshot, hosts, question.request.instance, question.table, question.row)
    return question.table.profiled(rows)[:, None]


def predict_classes(
    question: PlacementQuestion, classes: HostClasses, remembered: PredictionCache, *, pins: bool = True
) -> ClassPredictions:
    """Predict every class without the new VM, and with it under every usable option.

    Latency is predicted only where an instance limits it or the new VM is sensitive to it, and pins only where they
    could be chosen, and not at all without `pins`. Cached predictions are not computed again. No instance is better off
    with the new VM than without it (`no_better`).
    """
    sensitive = question.request.instance.service == "latency"
    of_latency = ~np.isnan(classes.waits).all(axis=1) | sensitive
    groups = [((), np.flatnonzero(~of_latency)), (("latency",), np.flatnonzero(of_latency))]
    predicted = [
        (rows, *_predicted(question, classes, rows, targets, remembered, pins)) for targets, rows in groups if len(rows)
    ]
    before, after = predicted[0][1:]
    if len(predicted) > 1:  # joined in the order of the classes
        order = np.argsort(np.concatenate([rows for rows, *_ in predicted]))
        before, after = (np.concatenate([parts[part] for parts in predicted])[order] for part in (1, 2))
    after[:, :, :2, :-1] = no_better(after[:, :, :2, :-1], before[:, None, :2, :-1])
    after[:, :, 2:, :-1] = no_better(after[:, :, 2:, :-1], before[:, None, 2:, :-1], high=True)
    usable = np.isfinite(after[:, :, 0, -1])
    places = np.flatnonzero(usable.any(axis=0)).tolist()
    expected, lower, latency, short = (
        np.stack([after[:, place, number] for place in places]) for number in range(FIGURES)
    )
    alone = ~(classes.present & (np.arange(question.slots) < question.slots - 1))
    return ClassPredictions(
        options=tuple(NAMES[place] for place in places),
        pins=_pins(places, usable),
        usable=usable.T[places],
        expected=expected,
        lower=lower,
        latency=latency,
        short=short,
        before=np.where(alone, 1.0, before[:, 0]),
        half_before=np.where(alone, 0.0, before[:, 0] - before[:, 1]),
        latency_before=np.where(alone, 1.0, before[:, 2]),
        short_before=np.where(alone, 0.0, before[:, 3]),
    )


def _pins(places: Sequence[int], usable: Bools) -> Bools:
    """Where these options need a command, (O, G); `usable` is (G, all options)."""
    pins = np.array([NAMES[place] not in {FREE, KEPT} for place in places], dtype=bool)
    pinned_now = usable[:, NAMES.index(KEPT)]
    unpins = np.array([NAMES[place] == FREE for place in places], dtype=bool)
    return np.asarray(pins[:, None] | (unpins[:, None] & pinned_now[None, :]))


def best_options(
    question: PlacementQuestion, classes: HostClasses, predictions: ClassPredictions
) -> tuple[Ints, scoring.Scores]:
    """The best option of every class, (G,), and its scores."""
    option_rows, class_rows = np.nonzero(predictions.usable)
    present, expected = classes.present[class_rows], predictions.expected[option_rows, class_rows]
    nothing = unasked(present)
    scene_scores = scoring.score(
        InterferencePrediction(
            BandArrays(expected, predictions.lower[option_rows, class_rows], expected), nothing, nothing, present
        ),
        present,
        predictions.before[class_rows],
        classes.limits[class_rows],
        classes.used[class_rows],
        question.request.objective,
        predictions.ceilings(classes, option_rows, class_rows),
        predictions.half_before[class_rows],
        predictions.more_short(classes, option_rows, class_rows),
    )
    number = np.full(predictions.usable.shape, -1)  # number of the scene, -1 where the option is not usable
    number[option_rows, class_rows] = np.arange(len(option_rows))
    scores = scene_scores.take(number.ravel())
    pins, usable = predictions.pins, predictions.usable
    option = scoring.choose_options(scores, len(predictions.options), pins, usable.ravel())
    return option, scene_scores.take(number[option, np.arange(len(classes))])


def no_better(after: Floats, before: Floats, *, high: bool = False) -> Floats:
    """What residents have after a new VM came, at best what they had before, in the shape of `after`; nan stays nan.

    A model may be off by a little either way, but one more neighbour never helps. `high` = of a ratio of which a high
    one is bad, as of latency.
    """
    return np.asarray(np.where(before > after if high else before < after, before, after))


def _predicted(
    question: PlacementQuestion,
    classes: HostClasses,
    chosen: Ints,
    targets: Sequence[str],
    remembered: PredictionCache,
    pins: bool,
) -> tuple[Floats, Floats]:
    """Expected T/B, its lower bound, expected latency and time short of the `chosen` classes, (G,).

    The first array is without the new VM, (G, 4, N); the second with it under every option, (G, O, 4, N), by its
    place in NAMES, nan where it is not usable, and LEFT_OUT where it would not be chosen whatever is predicted for it.
    """
    hosts = classes.hosts[chosen]
    keys_without, keys_with = keys(question, hosts, targets)
    block = (FIGURES, question.slots)
    is_known_without, before = remembered.before.find(keys_without, block)
    is_known_with, after = remembered.after.find(keys_with, (len(NAMES), *block))
    new_without, new_with = first_of_each(keys_without, is_known_without), first_of_each(keys_with, is_known_with)
    options: tuple[PinningOption, ...] = ()
    if len(new_with.first):
        base, absent = base_with(question, hosts[new_with.first])
        options = options_on(question, hosts[new_with.first], base)
    scenes = []
    if np.array_equal(new_without.first, new_with.first):
        scenes = [absent] if len(new_with.first) else []
    elif len(new_without.first):
        scenes = [base_with(question, hosts[new_without.first])[1]]
    # No instance is predicted to be faster than alone, so that a pinning may be known to gain too little.
    may_wait = correction_of(question.predictor) is not None and question.request.objective in {"worst", "total"}
    now = max(sum(not option.pins for option in options), 1) if may_wait else len(options)
    scenes += [with_new_vm(absent, option).take(np.flatnonzero(option.usable)) for option in options[:now]]
    if scenes:
        predicted = _in_parts(question.predictor, stack_scenes(scenes), targets)
        before[new_without.first] = predicted[: len(new_without.first)]
        _write(after, new_with.first, options[:now], predicted[len(new_without.first) :])
    for option in options[now:]:
        after[new_with.first[option.usable], NAMES.index(option.name)] = LEFT_OUT
    before[new_without.rows], after[new_with.rows] = before[new_without.like], after[new_with.like]
    remembered.before.keep([keys_without[row] for row in new_without.first.tolist()], before[new_without.first])
    remembered.after.keep([keys_with[row] for row in new_with.first.tolist()], after[new_with.first])
    if pins:
        _predict_pins(question, classes, chosen, targets, before, after, keys_with, remembered)
    else:
        _leave_out_pins(after, np.ones(len(after), dtype=bool))
    return before, after


def _predict_pins(
    question: PlacementQuestion,
    classes: HostClasses,
    chosen: Ints,
    targets: Sequence[str],
    before: Floats,
    after: Floats,
    keys_with: Sequence[bytes],
    remembered: PredictionCache,
) -> None:
    """Fill in what was left out of `after`, where it may be chosen."""
    left_out = np.flatnonzero(np.isinf(after[:, :, 0, -1]).any(axis=1))
    if question.predictor.origin == "analytic":
        may_gain = left_out[_pins_matter(question, classes, chosen[left_out], before[left_out], after[left_out])]
    else:
        pinned = _worth_pinning(question, classes, chosen, before, after)
        may_gain = left_out[pinned[left_out]]
        _leave_out_pins(after, ~pinned)
    if not len(may_gain):
        return
    known = np.ones(len(after), dtype=bool)
    known[may_gain] = False
    unknown = first_of_each(keys_with, known)
    hosts = classes.hosts[chosen[unknown.first]]
    base, absent = base_with(question, hosts)
    options = [option for option in options_on(question, hosts, base) if option.pins]
    scenes = stack_scenes([with_new_vm(absent, option).take(np.flatnonzero(option.usable)) for option in options])
    _write(after, unknown.first, options, _in_parts(question.predictor, scenes, targets))
    after[unknown.rows] = after[unknown.like]
    remembered.after.keep([keys_with[row] for row in unknown.first.tolist()], after[unknown.first])


def _leave_out_pins(after: Floats, rows: Bools) -> None:
    """Leave out pinnings in these of the rows, whatever was remembered of other searches, where leaving the new VM to
    the scheduler is a choice."""
    pins = np.array([name not in {FREE, KEPT} for name in NAMES], dtype=bool)
    is_free = np.isfinite(after[:, NAMES.index(FREE), 0, -1])
    after[(rows & is_free)[:, None] & pins] = LEFT_OUT


def _hosts(question: PlacementQuestion, positions: Ints) -> list[Host]:
    return [question.snapshot.hosts[position] for position in positions.tolist()]


def _worth_pinning(
    question: PlacementQuestion, classes: HostClasses, chosen: Ints, before: Floats, after: Floats
) -> Bools:
    """Where pinnings are predicted by a learned model, which takes off a little nearly everywhere: of the hosts where a
    pinning could be chosen the best ones, and those where a limit is violated; (G,)."""
    lost, violated = _left_free(question, classes, chosen, before, after)
    best = np.zeros(len(lost), dtype=bool)
    best[np.argsort(lost, kind="stable")[:MOST_PINNED]] = True
    return np.asarray((best & (lost > scoring.PIN_GAIN)) | violated)


def _pins_matter(
    question: PlacementQuestion, classes: HostClasses, chosen: Ints, before: Floats, after: Floats
) -> Bools:
    """Where a pinning could be chosen instead of leaving the scheduler free: where the objective has as much to gain,
    or where a limit is violated; (G,). `before` and `after` as in `_predicted`."""
    lost, violated = _left_free(question, classes, chosen, before, after)
    return np.asarray((lost > scoring.PIN_GAIN) | violated)


def _left_free(
    question: PlacementQuestion, classes: HostClasses, chosen: Ints, before: Floats, after: Floats
) -> tuple[Floats, Bools]:
    """What the objective loses where the new VM is left to the scheduler, and whether a limit is violated; (G,)."""
    free, last = after[:, NAMES.index(FREE)], question.slots - 1
    here = classes.present[chosen]
    new_vm = np.arange(question.slots) == last
    was = np.where(new_vm, 1.0, before[:, 0])
    kept = np.where(new_vm, free[:, 0], no_better(free[:, 0], before[:, 0]))
    if question.request.objective == "total":
        lost = np.where(here, was - kept, 0.0).sum(axis=1)
    else:
        lost = np.where(here, 1 - kept / was, 0.0).max(axis=1)
    worse = np.where(new_vm, free[:, 2:], no_better(free[:, 2:], before[:, 2:], high=True))
    ceilings = (
        scoring.Ceiling(classes.waits[chosen], worse[:, 0], np.where(new_vm, 1.0, before[:, 2])),
        scoring.Ceiling(classes.shorts[chosen], worse[:, 1], np.where(new_vm, 0.0, before[:, 3])),
    )
    violated = scoring.broken(kept, here, was, classes.limits[chosen], ceilings)
    return lost, np.asarray(violated.any(axis=1))


def _write(after: Floats, rows: Ints, options: Sequence[PinningOption], predicted: Floats) -> None:
    """Write the predictions of usable options, one after the other, into these rows."""
    at = 0
    for option in options:
        usable = rows[option.usable]
        after[usable, NAMES.index(option.name)] = predicted[at : at + len(usable)]
        at += len(usable)


class UnknownRows(NamedTuple):
    """The `rows` (U,) with unknown keys, the first row with the same key, `like` (U,), and these first rows."""

    rows: Ints
    like: Ints
    first: Ints


def first_of_each(keys: Sequence[bytes], known: Bools) -> UnknownRows:
    """The rows to predict: hosts that differ only in limits share one key."""
    rows = np.flatnonzero(~known)
    first: dict[bytes, int] = {}
    like = [first.setdefault(keys[row], row) for row in rows.tolist()]
    return UnknownRows(rows, np.array(like, dtype=np.int64), np.array(list(first.values()), dtype=np.int64))


def keys(question: PlacementQuestion, hosts: Ints, targets: Sequence[str]) -> tuple[list[bytes], list[bytes]]:
    """The cache keys of each host's prediction without the new VM, and with it."""
    snapshot, instance, table = question.snapshot, question.request.instance, question.table
    # The number of slots is part of the key: sums over eight and more slots differ in their last bits.
    table_key = snapshot.names.table if table is snapshot.scenes.table else layout.table_fingerprint(table)
    question_key = layout.digest(question.predictor.version, table_key, question.slots, tuple(targets))
    own_row = [] if question.row is None else [("", question.row)]
    by_name = [(platform, row) for (platform, name), row in table.rows.items() if name == instance.workload]
    new_vm = layout.digest(
        [(platform, layout.profile_fingerprint(table, row)) for platform, row in own_row or by_name],
        (instance.workload, instance.vcpus, instance.load, instance.service, instance.max_latency_ratio is None),
        (instance.settings, instance.demand_key),
        table.subject(instance),
    )
    without_new_vm = [
        fingerprint + question_key for fingerprint in snapshot.fingerprints[hosts].view(f"V{layout.SIZE}").tolist()
    ]
    changes = b"" if question.request.mitigate else b" as set"
    for host, slot in snapshot.where(instance.id):
        for at in np.flatnonzero(hosts == host).tolist():
            without_new_vm[at] += b"without %d%b" % (slot, changes)
    return without_new_vm, [key + new_vm for key in without_new_vm]


def options_on(question: PlacementQuestion, hosts: Ints, base: SceneBatch) -> tuple[PinningOption, ...]:
    """The pinnings of the instance in question on the hosts at these positions, whose scenes without it are `base`.

    Where it is pinned already it may stay so, and where no instance's settings may change it does.
    """
    request = question.request
    choices = _choices_on(question, hosts, base)
    here = question.snapshot.names.placed.get(request.instance.id)
    held = None if here is None else here.settings.pinning
    if here is None or held is None or not any(held.cpus) or len(held.cpus) > request.instance.vcpus:
        return choices
    rows = np.flatnonzero(hosts == question.snapshot.index(here.host or ""))
    if not len(rows) or not any(option.name == FREE for option in choices):
        return choices
    (kept,) = pinning.options(base, replace(request.instance, settings=here.settings), _hosts(question, hosts))
    return pinning.with_kept(choices, kept, rows, only=not request.mitigate)


def _choices_on(question: PlacementQuestion, hosts: Ints, base: SceneBatch) -> tuple[PinningOption, ...]:
    """As `pinning.options`, of hosts that were asked about before in this question without working them out again."""
    known: list[tuple[dict[int, int], tuple[PinningOption, ...]]] = question.once("options", list)
    positions = hosts.tolist()
    for rows, choices in known:
        if all(position in rows for position in positions):
            return pinning.taken(choices, np.array([rows[position] for position in positions], dtype=np.int64))
    may_gain = _pins_may_gain(question, hosts, base)
    choices = pinning.options(base, question.request.instance, _hosts(question, hosts), may_gain)
    known.append(({position: row for row, position in enumerate(positions)}, choices))
    return choices


def _pins_may_gain(question: PlacementQuestion, hosts: Ints, base: SceneBatch) -> Bools:
    """Where a pinning may be chosen, for something may change by it in what decides; (S,)."""
    snapshot, new_vm = question.snapshot, question.request.instance
    if question.predictor.origin != "analytic" or question.table.subjects or snapshot.where(new_vm.id):
        return np.ones(len(hosts), dtype=bool)
    described = rows_by_host(snapshot, hosts, new_vm, question.table, question.row) != 0
    waits = ~np.isnan(latency_limits_of(snapshot, hosts, new_vm, question.slots)).all(axis=1)
    return np.asarray(described | waits | pins_matter(base))


def base_with(question: PlacementQuestion, hosts: Ints) -> tuple[SceneBatch, SceneBatch]:
    """The hosts at these positions without the new VM, and with an empty last slot for it."""
    base = without_new_vm(question.snapshot, question.request, hosts, question.table)
    values = new_vm_slot(base, question.snapshot, hosts, question.request.instance, question.row)
    return base, base.with_slot(**{**values, "present": np.zeros(len(base), dtype=bool)})


def with_new_vm(absent: SceneBatch, option: PinningOption) -> SceneBatch:
    """The same scenes with the new VM present, pinned by an option."""
    present, affinity = absent.present.copy(), absent.affinity.copy()
    present[:, -1], affinity[:, -1] = True, option.affinity
    return replace(absent, present=present, affinity=affinity)


def _in_parts(predictor: Predictor, scenes: SceneBatch, targets: Sequence[str]) -> Floats:
    """Expected T/B, its lower bound, expected latency and time short of every slot; (S, 4, N)."""
    size = max(MAX_CELLS // scenes.slots**2, 1)
    values = np.empty((len(scenes), FIGURES, scenes.slots))
    for start in range(0, len(scenes), size):
        rows = np.arange(start, min(start + size, len(scenes)))
        prediction = predictor.predict(scenes if len(rows) == len(scenes) else scenes.take(rows), targets)
        ratios = prediction.throughput
        values[rows] = np.stack(
            [ratios.expected, ratios.lower, prediction.latency.expected, prediction.time_short()], axis=1
        )
    return values
