"""Fits a FittedTarget on all rows, and judges on what is left out how far it is believed, and with which ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.executor import Here, each
from models.features.examples import (
    STATED,
    Examples,
    Fold,
    GroupedExamples,
    contended,
    elsewhere_folds,
    elsewhere_of,
    family,
    group_repeats,
    host_folds,
    machines_of,
    newest_fold,
    pair_folds,
    workload_folds,
)
from models.features.feature_matrix import KINDS
from models.learning.fitted_target import (
    ALONE,
    HIGHEST,
    LOWEST,
    SURE,
    FittedTarget,
    LearnerTask,
    ResidualLearner,
    agreement,
    clipped,
    fit_learner,
    own_width,
    with_base,
)
from models.learning.held_out import HeldOutPredictions
from models.learning.memory import Memory, Stated, fit_memory
from models.learning.support import (
    ENOUGH_WORKLOADS,
    FEW,
    TIERS,
    Ranges,
    Support,
    TierErrors,
    balanced,
    calibrate,
    fit_support,
    hints_of,
    squares,
)
from models.physics.prior import CEILING

Progress = Callable[[str, float], None]
T = TypeVar("T")

LEAST_ROWS = 8  # with fewer rows nothing is learned
FEW_UNITS = 4  # campaigns: with fewer, members of the learner miss families of programs instead
TRUSTS = (0.5, 0.25, 0.0)  # parts of the correction that are tried on what was left out …
REACHES = (1.0, 0.5, 0.25)  # … and distances at which training counts as near, in spreads
UNTRIED = 0.5  # of the correction, and of what is remembered, elsewhere: where nothing that was left out shows it
SHOWN = 0.001  # of T/B: where no choice changes the error of left-out campaigns by more, they show nothing
WORSE = 2.0  # a campaign that is predicted worse counts as much as so many that are predicted better
ELSEWHERE = (0.0, 0.25, 0.5, 0.75, 1.0)  # parts of what is remembered by name that are tried on other machines
TIER_OF = {
    "unseen_campaign": "elsewhere", "unseen_host": "elsewhere", "newest": "elsewhere", "unseen_workload": "workload",
    "unseen_pair": "pair",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """What a learner without their fold says of J left-out grouped rows: `row` (J,), `learned` and `deviation` (J,);
    `likeness` (J, REACHES) how near its training was; `fold` (J,)."""

    protocol: str
    row: Ints
    learned: Floats
    deviation: Floats
    likeness: Floats
    fold: Ints
    folds: tuple[Fold, ...]

    def correction(self, trust: float, reach: float) -> Floats:
        """The correction of the log ratio with this trust, where hosts are left out, and reach; (J,)."""
        return (trust if TIER_OF[self.protocol] == "elsewhere" else 1.0) * self.nearness(reach) * self.learned

    def nearness(self, reach: float) -> Floats:
        """How much of what was learned applies, 0-1; (J,)."""
        return np.asarray(self.likeness[:, REACHES.index(reach)] * agreement(self.learned, self.deviation))


@dataclass(frozen=True, slots=True)
class _FoldTask:
    """A fit without one fold, and the rows of that fold (J, F); `machine` (R,) labels of the training rows, and `kinds`
    (F,) as `fit_support` takes it."""

    fit: LearnerTask
    machine: tuple[str, ...]
    test: Floats
    kinds: tuple[bool, ...]


def _fit_fold(task: _FoldTask) -> tuple[Floats, Floats, Floats]:
    """What the learner says of the fold's rows, how its members differ, and how near training is for each reach."""
    learner = fit_learner(task.fit)
    support = fit_support(task.fit.x, learner.importance, task.machine, REACHES[0], task.kinds)
    away = squares(task.test, support.centres, support.scale, support.weight)
    known = support.known_of(task.test)
    near = [support.of_squares(away, reach, known).value for reach in REACHES]
    return (*learner.predict(task.test), np.stack(near, axis=1))


def fit_target(
    examples: Examples, target: str, *, seed: int = 0, progress: Progress | None = None, run: Executor | None = None
) -> FittedTarget:
    """Cross-validate on what is left out, choose how far the learner is believed, fit on all rows, and calibrate.

    Campaigns (or platforms), families of workloads and pairs are left out in turn; of windows (`share`) hosts, and the
    newest windows. `run` is where the fits happen, None = here.
    """
    say = progress or (lambda _what, _done: None)
    rows = group_repeats(examples)
    if len(rows.examples) < LEAST_ROWS:
        return _nothing_learned(examples, target)
    task = _task(rows, seed)
    machine = machines_of(rows.examples.platform, rows.examples.stated)
    judged = _left_out(
        rows, task, machine, target, seed, run or Here(), lambda done: say(f"{target}: left out", 0.8 * done)
    )
    trust, reach = _believed(rows, judged, target)
    memory, remembered = _remember(rows, judged, trust, reach, target)
    say(f"{target}: fitting", 0.85)
    learner = fit_learner(task)
    support = fit_support(task.x, learner.importance, machine, reach, _kinds(examples))
    say(f"{target}: calibrating", 0.95)
    return _calibrated(rows, examples, target, judged, (learner, support, trust, reach), memory, remembered)


def _kinds(examples: Examples) -> tuple[bool, ...]:
    """Which columns of `with_base` say what kind of question a row is."""
    return (*(name in KINDS for name in examples.names), False)


def _task(rows: GroupedExamples, seed: int) -> LearnerTask:
    """All grouped rows as one fit. Errors of the ratio count, so that a residual weighs as much as its ratio; campaigns
    weigh by the root of their size, so that the largest does not decide alone."""
    examples = rows.examples
    ratio = np.clip(np.exp(rows.residual) * examples.base, 0.02, 1.5)
    labels = elsewhere_of(examples)
    weight = rows.weight * ratio * balanced(labels)
    if len(examples.importance) and examples.ends_s.any():
        weight = rows.weight * examples.importance
    names = labels
    if len(set(labels)) < FEW_UNITS and not examples.ends_s.any():
        names = tuple(f"{family(victim)}" for victim in examples.victim)
    elif examples.ends_s.any():
        names = examples.pair
    unit = np.unique(np.array(names), return_inverse=True)[1]
    x = with_base(examples.x, examples.base)
    monotone = np.append(examples.monotone, 0).astype(np.int8)
    if target_grows(examples):
        monotone = np.zeros_like(monotone)
    return LearnerTask(x, clipped(rows.residual), weight / weight.mean(), unit, monotone, seed)


def target_grows(examples: Examples) -> bool:
    """Whether more pressure makes the ratio larger, as that of latency: then no constraint of T/B holds."""
    return bool(np.median(examples.base) > 1)


def _part(task: LearnerTask, rows: Ints) -> LearnerTask:
    return replace(task, x=task.x[rows], residual=task.residual[rows], weight=task.weight[rows], unit=task.unit[rows])


def _left_out(
    rows: GroupedExamples,
    task: LearnerTask,
    machine: Sequence[str],
    target: str,
    seed: int,
    run: Executor,
    say: Callable[[float], None],
) -> list[JudgedPart]:
    planned = _planned(rows.examples, target, seed)
    tasks = [
        _FoldTask(_part(task, train), tuple(machine[row] for row in train), task.x[test], _kinds(rows.examples))
        for _, folds in planned
        for train, test in folds
    ]
    found = each(run, _fit_fold, tasks, lambda count: say(count / max(len(tasks), 1)))
    judged, at = [], 0
    for protocol, folds in planned:
        parts = found[at : at + len(folds)]
        at += len(folds)
        judged.append(
            JudgedPart(
                protocol,
                np.concatenate([test for _, test in folds]),
                np.concatenate([one[0] for one in parts]),
                np.concatenate([one[1] for one in parts]),
                np.concatenate([one[2] for one in parts]),
                np.repeat(np.arange(len(folds)), [len(test) for _, test in folds]),
                tuple(folds),
            )
        )
    return judged


def _planned(examples: Examples, target: str, seed: int) -> list[tuple[str, list[Fold]]]:
    if target == "share":
        older, newest = newest_fold(examples)
        planned = [
            ("unseen_host", host_folds(examples, older, seed)),
            ("newest", [(older, newest)] if len(newest) else []),
        ]
    else:
        planned = [
            ("unseen_campaign", elsewhere_folds(examples)),
            ("unseen_workload", workload_folds(examples)),
            ("unseen_pair", pair_folds(examples, seed)),
        ]
    usable = [(name, [fold for fold in folds if len(fold[0]) >= LEAST_ROWS]) for name, folds in planned]
    return [(name, folds) for name, folds in usable if folds]


def _believed(rows: GroupedExamples, judged: Sequence[JudgedPart], target: str) -> tuple[float, float]:
    """The trust and the reach with which left-out campaigns are predicted best.

    Each campaign counts once, and WORSE times where it is predicted worse than by the analytic model.
    """
    first = next((one for one in judged if TIER_OF[one.protocol] == "elsewhere"), None)
    if first is None:
        return UNTRIED, REACHES[0]
    base = rows.examples.base[first.row]
    measured = np.exp(rows.residual[first.row]) * base
    labels = np.array(elsewhere_of(rows.examples))[first.row]
    group = np.unique(labels, return_inverse=True)[1] if first.protocol == "unseen_campaign" else first.fold
    weight = np.sqrt(np.bincount(group))

    def loss(choice: tuple[float, float]) -> float:
        expected = np.clip(base * np.exp(first.correction(*choice)), LOWEST[target], HIGHEST[target])
        off = _off(target, measured, expected) - _off(target, measured, np.clip(base, LOWEST[target], HIGHEST[target]))
        change = np.bincount(group, off) / np.maximum(np.bincount(group), 1)
        return float((weight * np.where(change > 0, WORSE * change, change)).sum())

    # Hosts of one cloud are more alike than campaigns, and enough of them that were left out show it.
    of_one_cloud = target == "share" or (len(set(rows.examples.campaign)) < 2 and len(set(labels)) >= FEW_UNITS)
    trusts = (1.0, *TRUSTS) if of_one_cloud else TRUSTS
    choices = [(trust, reach) for reach in REACHES for trust in trusts[::-1]]
    return _best(choices, loss, weight.sum(), untried=(UNTRIED, REACHES[0]))


def _best(choices: Sequence[T], loss: Callable[[T], float], weight: float, *, untried: T) -> T:
    """The choice of the least loss, the first of equals; `untried` where the losses, over `weight`, are all alike: what
    was left out is then too far from training to be changed by it."""
    losses = [loss(choice) for choice in choices]
    if max(losses) - min(losses) <= SHOWN * weight:
        return untried
    return choices[int(np.argmin(losses))]


def _off(target: str, measured: Floats, expected: Floats) -> Floats:
    if target in {"throughput", "share"}:
        return np.abs(measured - expected)
    return np.abs(np.log(measured / expected))


def _remember(
    rows: GroupedExamples, judged: Sequence[JudgedPart], trust: float, reach: float, target: str
) -> tuple[Memory, dict[str, Floats]]:
    """What is remembered by name, and of every protocol what it says of left-out rows, (J,)."""
    examples = rows.examples
    of_pairs = next((one for one in judged if one.protocol == "unseen_pair"), None)
    nothing = {one.protocol: np.zeros(len(one.row)) for one in judged}
    if target == "share" or of_pairs is None:
        return Memory(), nothing
    left = np.full(len(rows.residual), np.nan)
    left[of_pairs.row] = clipped(rows.residual)[of_pairs.row] - of_pairs.correction(trust, reach)
    platforms = _platforms(examples)
    memory, said = fit_memory(
        examples.victim, examples.neighbours, left, rows.spread, rows.count, of_pairs.folds, examples.base,
        platforms, UNTRIED,
    )  # fmt: skip
    found = nothing | {"unseen_pair": said[of_pairs.row]}
    away = next((one for one in judged if one.protocol == "unseen_campaign"), None)
    if away is not None:
        whole = np.zeros(len(away.row))
        for fold, (train, test) in enumerate(away.folds):
            kept = np.flatnonzero(np.isfinite(left[train]))
            part = examples.take(train[kept])
            of_fold, _ = fit_memory(
                part.victim, part.neighbours, left[train[kept]], rows.spread[train[kept]], rows.count[train[kept]],
                pair_folds(part), part.base, platforms, UNTRIED,
            )  # fmt: skip
            whole[away.fold == fold] = of_fold.of(*_names(examples, test)).effect
        base = examples.base[away.row]
        measured = np.exp(rows.residual[away.row]) * base
        labels = np.unique(np.array(elsewhere_of(examples))[away.row], return_inverse=True)[1]
        corrected = away.correction(trust, reach)

        def loss(part: float) -> float:
            off = _off(
                target, measured, np.clip(base * np.exp(corrected + part * whole), LOWEST[target], HIGHEST[target])
            )
            before = _off(target, measured, np.clip(base * np.exp(corrected), LOWEST[target], HIGHEST[target]))
            change = np.bincount(labels, off - before) / np.bincount(labels)
            return float((np.sqrt(np.bincount(labels)) * np.where(change > 0, WORSE * change, change)).sum())

        best = _best(ELSEWHERE, loss, np.sqrt(np.bincount(labels)).sum(), untried=UNTRIED)
        memory = replace(memory, elsewhere=best)
        found["unseen_campaign"] = best * whole
    return memory, found


def _platforms(examples: Examples) -> dict[str, Stated]:
    """What is stated of each platform."""
    stated = examples.stated if len(examples.stated) else np.full((len(examples), len(STATED)), np.nan)
    first = {name: row for row, name in reversed([*enumerate(examples.platform)])}
    return {
        name: tuple(None if np.isnan(one) else one for one in stated[row].tolist())
        for name, row in sorted(first.items())
    }


def _names(examples: Examples, rows: Ints) -> tuple[list[str], list[Any]]:
    return [examples.victim[row] for row in rows], [examples.neighbours[row] for row in rows]


def _calibrated(
    rows: GroupedExamples,
    examples: Examples,
    target: str,
    judged: Sequence[JudgedPart],
    believed: tuple[ResidualLearner, Support, float, float],
    memory: Memory,
    remembered: Mapping[str, Floats],
) -> FittedTarget:
    learner, support, trust, reach = believed
    least, most = learner_bounds(learner)
    down, up = memory.extremes
    ceiling = _ceiling(examples.ratio, target)
    fitted = FittedTarget(
        target, (*examples.names, "log base"), learner, support, trust, memory,
        Ranges(0.0, (0.0,) * 4, dict.fromkeys(TIERS, (1.0, 1.0))), least + down, most + up, ceiling, {},
    )  # fmt: skip
    tiers: dict[str, TierErrors] = {}
    for one in judged:
        row, at = expanded(one.row, rows.group)
        tier = TIER_OF[one.protocol]
        found = _tier(fitted, examples, rows, one, remembered[one.protocol], row, at, reach)
        tiers[tier] = found if tier not in tiers else _both(tiers[tier], found)
    workloads = len({family(name) for name in examples.workloads}) if target != "share" else ENOUGH_WORKLOADS
    fitted = replace(fitted, ranges=calibrate(tiers, workloads))
    held_out = tuple(
        _held_out(fitted, examples, rows, one, remembered[one.protocol], reach) for one in judged if len(one.row)
    )
    return replace(fitted, held_out=held_out, figures={one.protocol: _figures(one) for one in held_out})


def learner_bounds(learner: ResidualLearner) -> tuple[float, float]:
    """At least and at most the correction of the log ratio that the learner can say."""
    least, most = learner.trees.extremes
    return min(float(least.mean()), 0.0), max(float(most.mean()), 0.0)


def expanded(row: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Spread J grouped rows over their repeats: (K,) rows of the examples, and (K,) indices into the J."""
    order = np.argsort(group, kind="stable")
    begin = np.searchsorted(group[order], np.arange(group.max(initial=-1) + 2))
    count = (begin[1:] - begin[:-1])[row]
    start = np.repeat(begin[:-1][row] - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
    return order[start + np.arange(count.sum())], np.repeat(np.arange(len(row)), count)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What would have been said of K left-out rows, before there are ranges."""

    expected: Floats
    hints: Floats
    nearness: Floats
    familiar: Floats
    here: Bools


def _answered(
    fitted: FittedTarget, examples: Examples, one: JudgedPart, remembered: Floats, row: Ints, at: Ints, reach: float
) -> _Answer:
    base = examples.base[row]
    near = one.likeness[:, REACHES.index(reach)]
    correction = np.clip((one.correction(fitted.trust, reach) + near * remembered)[at], fitted.least, fitted.most)
    correction = np.where(examples.size[row] <= 1, 0.0, correction)
    expected = np.clip(base * np.exp(correction), LOWEST[fitted.target], HIGHEST[fitted.target])
    tier = TIER_OF[one.protocol]
    return _Answer(
        expected,
        hints_of(base, expected, correction, one.deviation[at]),
        one.nearness(reach)[at],
        np.full(len(row), float(tier == "pair")),
        np.full(len(row), tier != "elsewhere"),
    )


def _tier(
    fitted: FittedTarget, examples: Examples, rows: GroupedExamples, one: JudgedPart, remembered: Floats, row: Ints,
    at: Ints, reach: float,
) -> TierErrors:  # fmt: skip
    answer = _answered(fitted, examples, one, remembered, row, at, reach)
    own = own_width(fitted.target, examples.base[row])
    labels = elsewhere_of(examples)
    weight = balanced([labels[at] for at in row])
    if len(examples.importance) and examples.ends_s.any():
        weight = examples.importance[row] / max(examples.importance[row].mean(), 1e-12)
    counted = examples.size[row] > 1
    short = counted & contended(examples)[row]
    if fitted.target == "share" and short.sum() >= FEW:  # ranges of calm rows always hold, and would make up for others
        counted = short
    error = np.log(np.clip(examples.ratio[row], LOWEST[fitted.target], None)) - np.log(answer.expected)
    count = rows.count[rows.group[row]]
    own_error = np.log(examples.ratio[row] / examples.base[row]) - rows.residual[rows.group[row]]
    scatter = np.where(count > 1, own_error * np.sqrt(count / np.maximum(count - 1, 1)), np.nan)
    return TierErrors(
        error[counted], scatter[counted], answer.hints[counted], answer.familiar[counted], answer.nearness[counted],
        (own[counted], own[counted]), weight[counted],
    )  # fmt: skip


def _both(one: TierErrors, other: TierErrors) -> TierErrors:
    return TierErrors(
        np.concatenate([one.error, other.error]), np.concatenate([one.scatter, other.scatter]),
        np.concatenate([one.hints, other.hints]), np.concatenate([one.familiar, other.familiar]),
        np.concatenate([one.nearness, other.nearness]),
        (np.concatenate([one.own[0], other.own[0]]), np.concatenate([one.own[1], other.own[1]])),
        np.concatenate([one.weight, other.weight]),
    )  # fmt: skip


def _held_out(
    fitted: FittedTarget, examples: Examples, rows: GroupedExamples, one: JudgedPart, remembered: Floats, reach: float
) -> HeldOutPredictions:
    row, at = expanded(one.row, rows.group)
    labels = elsewhere_of(examples)
    answer = _answered(fitted, examples, one, remembered, row, at, reach)
    base = examples.base[row]
    own = own_width(fitted.target, base)
    down, up = fitted.ranges.half_widths(answer.hints, answer.here, answer.familiar, answer.nearness, (own, own))
    alone = examples.size[row] <= 1
    down, up = (np.where(alone, ALONE, width) for width in (down, up))
    expected = answer.expected
    return HeldOutPredictions(
        target=fitted.target,
        protocol=one.protocol,
        key=tuple(examples.key[at] if examples.key else examples.run[at] for at in row),
        platform=tuple(labels[at] for at in row),
        pair=tuple(examples.pair[at] for at in row),
        measured=examples.ratio[row],
        prior=base,
        expected=expected,
        lower=np.clip(expected * np.exp(-down), LOWEST[fitted.target], np.minimum(expected, SURE[fitted.target])),
        upper=np.maximum(np.minimum(expected * np.exp(up), fitted.ceiling), expected),
    )


def _figures(held: HeldOutPredictions) -> dict[str, float]:
    off = np.abs(held.measured - held.expected)
    hosts = {"hosts": len(set(held.pair))} if held.target == "share" else {}  # the pair of a window is its host
    return {
        "rows": len(held),
        **hosts,
        "mae": round(float(off.mean()), 5),
        "mae_prior": round(float(np.abs(held.measured - held.prior).mean()), 5),
        "p90_abs_error": round(float(np.quantile(off, 0.9)), 5),
        "coverage": round(float(((held.measured >= held.lower) & (held.measured <= held.upper)).mean()), 5),
    }


def _nothing_learned(examples: Examples, target: str) -> FittedTarget:
    ranges = calibrate({}, 0)
    names = (*examples.names, "log base")
    return FittedTarget(
        target, names, None, None, 0.0, Memory(), ranges, 0.0, 0.0, _ceiling(examples.ratio, target), {}
    )


def _ceiling(ratio: Floats, target: str) -> float:
    """The highest upper bound: no instance runs faster with neighbours than alone, apart from measured noise."""
    if target == "share":
        return 1.0
    if target != "throughput":
        return np.inf
    return float(max(CEILING, np.quantile(ratio, 0.995))) if len(ratio) else CEILING
