"""FittedTarget: the residual model of one target, its calibration, and the feature ranges it was trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Ints
from models.data.scene import HOST_NUMBERS
from models.features.examples import Examples
from models.features.feature_matrix import LIMITS, PLATFORM
from models.features.repeats import GroupedExamples, group_repeats
from models.features.window_folds import host_folds, newest_fold
from models.learning.cross_validation import OutOfFoldPredictions, cross_val_predict, expanded, with_effects
from models.learning.effects import Effects, choose_regularisation, fit_effects, terms_of
from models.learning.held_out import HeldOutPredictions
from models.learning.intervals import Calibration, calibrate, hints_of, out_of_fold_scales
from models.learning.residual_model import (
    HIGHEST,
    LEAST_ROWS,
    LOWEST,
    NOTHING_LEARNED,
    ResidualModel,
    StackingWeights,
    choose_stacking_weights,
    fit_base_learners,
)
from models.physics.prior import JITTER_TIMES, LATENCY_TIMES, PRIOR_HALF_WIDTH, prior_spread

Progress = Callable[[str, float], None]

OUTSIDE_SHARE = 0.2  # a row with a larger share of out-of-range features lies outside the training data
OUTSIDE_MARGIN = 0.5  # a feature is out of range beyond this margin, in spans of its training range
# What is left out of training in turn, in words for who waits.
LEFT_OUT = {
    "unseen_pair": "pairs",
    "unseen_workload": "workloads",
    "unseen_platform": "platforms",
    "random_row": "rows",
}
HOST = frozenset({*HOST_NUMBERS, "kind", "disk_kind"})  # columns of a host, beside its platform's own numbers
UNKNOWN = -1.0  # stands for a number of a host that nobody says
FEWEST_PAIRS = 5  # on left-out platforms: with fewer, new platforms have the weights of unknown workloads
FEWEST_PLATFORMS = 2  # of a kind of host, before what is learned on some says anything of others
OFTEN_KNOWN = 0.5  # of the rows of left-out pairs: where fewer have known workloads only, single rows are left out, too
# lower bounds never claim a gain from neighbours
SURE = {"throughput": 1.0, "latency": np.inf, "jitter": np.inf, "share": 1.0}
ALONE = 0.02  # half width for an instance without neighbours: repeats of one run differ by about that much
KINDS = ("kind",)  # categorical features: a value that was not in training lies outside the training data
SETS = ("cpu_set",)
LOADS, LOAD_FACTOR = ("load",), 1.25
DIRECT_ROWS = 100  # with fewer, trees of T/B itself know less than the prior (decisions 111 and 137)
WEIGHTS, UNEVEN = ("weight_share",), 0.02  # of a scene, times its instances: 1 where all weigh the same
SIZES, SIZE_FACTOR = ("pcpus",), 4.0  # a host larger or smaller by this factor lies outside the training data
# Where a scene has more instances by more than this factor than any in training, it lies outside the training data. A
# newcomer is always one more. Shares learned from windows hold beyond: they go by what is wanted, not by who wants it.
MORE_INSTANCES = {"share": 1.5}


@dataclass(frozen=True, slots=True)
class TargetEstimate:
    """Expected ratio with its 90 % interval (each bound alone holds in 95 %), all (R,).

    `known` marks rows whose workloads were all in training, `outside` rows outside the training data.
    """

    expected: Floats
    lower: Floats
    upper: Floats
    known: Bools
    outside: Bools


@dataclass(frozen=True, slots=True)
class FittedTarget:
    """Everything needed to predict one ratio.

    `low` and `high` (F,) are the range of each feature in training, nan = never seen. `limits` are the columns of
    settings that limit an instance, `kinds` the training values of categorical columns, `sizes` the columns with the
    size of the host, `sets` those with the number of CPUs that an instance may use, `loads` those with its load, `even`
    those with its part of all weights where nobody in training weighed more than another. `carried` are the kinds of
    hosts whose left-out platforms the correction told better than the prior, None = all: on platforms of other kinds
    that training did not see, the prior answers.
    `host_columns` (H,) describe the host, and `hosts` (P, H) are those of training that these tell apart. `figures`
    are error figures by protocol, `held_out` the predictions of left-out rows.
    """

    target: str
    model: ResidualModel
    calibration: Calibration
    low: Floats
    high: Floats
    limits: tuple[int, ...]
    most_instances: int
    ceiling: float
    figures: Mapping[str, Mapping[str, Any]]
    held_out: tuple[HeldOutPredictions, ...] = ()
    host_columns: tuple[int, ...] = ()
    hosts: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    kinds: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    sets: tuple[int, ...] = ()
    loads: tuple[int, ...] = ()
    even: tuple[int, ...] = ()
    carried: tuple[float, ...] | None = None

    def ask(self, examples: Examples) -> TargetEstimate:
        """Predict examples; reference path beside `LearnedPredictor`, which does the same for scenes."""
        known = self.model.all_known(examples.victim, examples.neighbours)
        effects = self.model.effects.predict(examples.victim, examples.neighbours)
        platform = _platforms(examples)
        unheard_of = self.limited(examples.x) | self.weighed(examples.x, examples.size)
        beside = np.isin(examples.run, np.unique(np.array(examples.run)[unheard_of])) if unheard_of.any() else None
        return self.estimate(examples.x, examples.base, effects, known, examples.size, platform, beside)

    def estimate(
        self,
        x: Floats,
        base: Floats,
        effects: Floats,
        known: Bools,
        size: Ints,
        platform: NDArray[np.str_],
        thin: Bools | None = None,
    ) -> TargetEstimate:
        """Turn features, base ratio and effects (R,) into ratios with intervals.

        `size` (R,) is the number of instances in each row's scene, `platform` (R,) its platform's name. `thin` (R,)
        marks rows whose profiles know too few metrics, or beside which somebody has settings that training never had.
        For those and for other rows outside the training data, the result is the prior's, with an interval at least as
        wide as the prior's for unknown workloads; on a host of a new kind or a very different size with just that
        interval, for errors elsewhere say nothing of it. An instance without neighbours is not corrected either: its
        ratio is 1 by definition. On a new platform nobody is known.
        """
        elsewhere: Bools | bool = False
        if known.any() or self.model.platform_weights is not None or self.carried is not None:
            elsewhere = ~self._seen(x, platform)
            known = known & ~elsewhere
        outside, alone = self.outside(x) | self.weighed(x, size), size <= 1
        outside |= elsewhere & ~_carries(x, tuple(self.kinds), self.carried)
        if thin is not None:
            outside |= thin
        parts = self.model.parts(x, base)
        learned = np.where(outside | alone, 0.0, self.model.correction(parts, effects, known, elsewhere))
        expected = np.clip(base * np.exp(learned), LOWEST[self.target], HIGHEST[self.target])
        outside |= size > MORE_INSTANCES.get(self.target, 1.0) * self.most_instances
        hints = hints_of(base, learned, parts, known)
        down, up = self.calibration.half_widths(x, hints, known, outside, platform)
        priors = _prior_width(self.target, base)
        down, up = (np.where(outside, np.maximum(width, priors), width) for width in (down, up))
        foreign = self.on_foreign_hosts(x)
        down, up = (np.where(alone, ALONE, np.where(foreign, priors, width)) for width in (down, up))
        return TargetEstimate(
            expected=expected,
            lower=np.clip(expected * np.exp(-down), LOWEST[self.target], np.minimum(expected, SURE[self.target])),
            upper=np.minimum(expected * np.exp(up), self.ceiling),
            known=known,
            outside=outside,
        )

    def _seen(self, x: Floats, platform: NDArray[np.str_]) -> Bools:
        """Whether training saw each row's platform, by its name or by every number of a host that no other platform
        of training shares; (R,)."""
        seen = np.isin(platform, list(self.model.platforms))
        described = _described(x, self.host_columns)
        for host in self.hosts:
            seen |= (described == host).all(axis=1)
        return np.asarray(seen)

    def outside(self, x: Floats) -> Bools:
        """Whether a row lies outside the training data; (R,).

        That is so when too many features are out of range or were never seen in training, when a limit is set that
        never was in training, when an instance may use several CPUs and none in training could, when its load is well
        above any in training, and when the host is of a new kind or a very different size.
        """
        span = np.maximum(self.high - self.low, 1e-9)
        never = ~np.isfinite(self.low)
        lowest = np.where(never, np.inf, self.low - OUTSIDE_MARGIN * span)
        highest = np.where(never, np.inf, self.high + OUTSIDE_MARGIN * span)
        finite = np.isfinite(x)
        with np.errstate(invalid="ignore"):
            far = ((x < lowest) | (x > highest)) & finite
        strange = np.count_nonzero(far, axis=1) > OUTSIDE_SHARE * np.count_nonzero(finite, axis=1)
        for column in self.loads:  # latencies are often measured at part loads alone
            strange |= x[:, column] > LOAD_FACTOR * self.high[column]
        return np.asarray(strange | self.limited(x) | self.on_foreign_hosts(x) | self.choosing(x))

    def choosing(self, x: Floats) -> Bools:
        """Whether a row's instance may choose among CPUs, which nobody in training could; (R,)."""
        found = np.zeros(len(x), dtype=bool)
        for column in self.sets:
            if self.high[column] <= 1:
                found |= x[:, column] > 1
        return found

    def weighed(self, x: Floats, size: Ints) -> Bools:
        """Whether a row's instance weighs more or less than others of its scene, which has `size` (R,) instances, and
        nobody in training did; (R,)."""
        found = np.zeros(len(x), dtype=bool)
        for column in self.even:
            found |= np.abs(x[:, column] * size - 1) > UNEVEN
        return found

    def limited(self, x: Floats) -> Bools:
        """Whether a row's instance has a limit that nobody in training had; (R,)."""
        found = np.zeros(len(x), dtype=bool)
        for column in self.limits:
            if not np.isfinite(self.low[column]):
                found |= np.isfinite(x[:, column])
        return found

    def on_foreign_hosts(self, x: Floats) -> Bools:
        """Whether a row's host is of a new kind or a very different size; (R,)."""
        foreign = np.zeros(len(x), dtype=bool)
        for column, seen in self.kinds.items():
            foreign |= ~np.isin(x[:, column], seen)
        for column in self.sizes:
            large = x[:, column]
            foreign |= (large > SIZE_FACTOR * self.high[column]) | (large * SIZE_FACTOR < self.low[column])
        return foreign


def fit_target(examples: Examples, target: str, *, seed: int = 0, progress: Progress | None = None) -> FittedTarget:
    """Cross-validate on what is left out, choose stacking weights, fit on all rows, and calibrate.

    Pairs, workloads and platforms are left out in turn. Where most left-out pairs take a workload with them, such as
    with one victim only, single rows are, too: hardly anything else would judge what is said of known workloads.
    """
    say = progress or (lambda _what, _done: None)
    rows = group_repeats(examples)
    if len(rows.examples) < LEAST_ROWS:
        return _fitted(examples, target, NOTHING_LEARNED, [])
    judged: list[OutOfFoldPredictions] = []
    many = len(rows.examples) >= DIRECT_ROWS
    for number, (protocol, what) in enumerate(LEFT_OUT.items()):

        def step(done: float, number: int = number, what: str = what) -> None:
            say(f"{target}: left-out {what}", 0.8 * (number + done) / len(LEFT_OUT))

        if protocol != "random_row" or judged[0].known.sum() < OFTEN_KNOWN * len(judged[0].row):
            judged.append(cross_val_predict(rows, protocol, seed=seed, say=step, direct=many))
    say(f"{target}: effects of known workloads", 0.8)
    effects, predictions = _with_effects(rows, judged)
    here = [one for one in predictions if one.protocol != "unseen_platform"]
    known_weights, unknown_weights = (_stacking_weights(rows, here, known) for known in (True, False))
    left_out = [one for one in predictions if one.protocol == "unseen_platform" and _pairs(rows, one) >= FEWEST_PAIRS]
    if not any(one.known.any() for one in predictions):  # nothing says more of known workloads than of others
        known_weights = unknown_weights
    # What T/B was may carry over to other hosts, or only how far the prior was off: left-out ones tell (decision 136).
    whole = (unknown_weights, known_weights)
    carried = [*whole, *(weights.without("direct") for weights in whole)]
    elsewhere = _believed_elsewhere(rows, left_out[0], *carried) if left_out else None
    of_kinds = _carried(rows, left_out[0], elsewhere) if left_out and elsewhere is not None else None
    say(f"{target}: fitting", 0.85)
    everything = np.arange(len(rows.examples))
    direct = any(weights.of("direct") for weights in whole)
    model = ResidualModel(
        base_learners=fit_base_learners(rows, everything, seed=seed, direct=direct),
        effects=effects,
        known_weights=known_weights,
        unknown_weights=unknown_weights,
        known=frozenset(examples.workloads),
        platforms=frozenset(_platforms(examples).tolist()),
        platform_weights=elsewhere,
    )
    say(f"{target}: calibrating", 0.95)
    return _fitted(examples, target, model, [(prediction, rows.group) for prediction in predictions], of_kinds)


def fit_share(examples: Examples, *, seed: int = 0, progress: Progress | None = None) -> FittedTarget:
    """Fit the share of CPU time that instances get, from windows: judged on hosts and instances that were left out, and
    on the newest windows.

    Stacking weights are chosen on left-out hosts among the older windows, so that the newest ones choose nothing.
    """
    say = progress or (lambda _what, _done: None)
    rows = group_repeats(examples)
    if len(rows.examples) < LEAST_ROWS:
        return _fitted(examples, "share", NOTHING_LEARNED, [])
    weight = rows.weight * rows.examples.importance
    rows = replace(rows, weight=weight / weight.mean())
    older, newest = newest_fold(rows.examples)
    judged = [
        cross_val_predict(
            rows, protocol, seed=seed, say=lambda done: say("share: left-out hosts", done), folds=folds, direct=False
        )
        for protocol, folds in (
            ("unseen_host", host_folds(rows.examples, older, seed)),
            ("newest", [(older, newest)] if len(newest) else []),
        )
    ]
    # by hosts nobody is known, and hosts decide how far base learners are believed
    predictions = [replace(one, known=np.zeros(len(one.row), dtype=bool)) for one in judged]
    blend = _stacking_weights(rows, predictions[:1], known=False)
    say("share: fitting", 0.9)
    learners = fit_base_learners(rows, np.arange(len(rows.examples)), seed=seed, direct=False)
    model = ResidualModel(learners, Effects(), StackingWeights(), blend, frozenset())
    return _fitted(examples, "share", model, [(one, rows.group) for one in predictions])


def _with_effects(
    rows: GroupedExamples, predictions: Sequence[OutOfFoldPredictions]
) -> tuple[Effects, list[OutOfFoldPredictions]]:
    """Fit the effects of known workloads to what the stacked base learners do not explain of left-out pairs, or of
    left-out rows where those are judged."""
    left = np.full(len(rows.residual), np.nan)
    first = max(predictions, key=lambda one: one.protocol == "random_row")
    blend = _stacking_weights(rows, [first], known=True)
    left[first.row] = rows.residual[first.row] - first.correction(blend, blend)
    terms = terms_of(rows.examples.victim, rows.examples.neighbours)
    strength, of_folds = choose_regularisation(terms, left, first.folds, rows.examples.pair)
    found = [
        with_effects(one, terms, left, of_folds if one is first else [strength] * len(one.folds)) for one in predictions
    ]
    return fit_effects(terms, left, strength), found


def _believed_elsewhere(
    rows: GroupedExamples, predictions: OutOfFoldPredictions, *candidates: StackingWeights
) -> StackingWeights:
    """Of these weights those that tell left-out platforms best, by pairs; none where the prior is as good.

    Each platform counts once, however many pairs were measured there: two that are one machine, with hundreds of pairs,
    would outvote all others. Finer weights would be chosen by how a few platforms happen to differ.
    """
    row, base = predictions.row, rows.examples.base[predictions.row]
    measured = np.exp(rows.residual[row]) * base
    names = _platforms(rows.examples)[row]

    def error(weights: StackingWeights) -> float:
        off = np.abs(measured - base * np.exp(predictions.correction(weights, weights)))
        return _by_platforms(rows, row, names, off)

    return min((StackingWeights(), *candidates), key=error)


def _by_platforms(rows: GroupedExamples, row: Ints, names: NDArray[np.str_], off: Floats) -> float:
    """The mean of errors `off` (J,) of rows (J,), over pairs and then over their platforms, `names` (J,)."""
    there = [f"{name} {rows.examples.pair[one]}" for name, one in zip(names, row, strict=True)]
    _, first, pair = np.unique(there, return_index=True, return_inverse=True)
    platform = np.unique(names, return_inverse=True)[1][first]
    of_pairs = np.bincount(pair, off) / np.bincount(pair)
    return float((np.bincount(platform, of_pairs) / np.bincount(platform)).mean())


def _carried(
    rows: GroupedExamples, predictions: OutOfFoldPredictions, weights: StackingWeights
) -> tuple[float, ...] | None:
    """The kinds of hosts whose left-out platforms these weights told better than the prior; None where the examples
    name no kind. It takes two platforms of a kind, of FEWEST_PAIRS or more pairs each: what carries over among hosts of
    one kind says nothing of another, and one platform has no other of its kind to learn from."""
    columns = _columns(rows.examples.names, KINDS)
    if not columns:
        return None
    row, platforms = predictions.row, _platforms(rows.examples)
    base, names = rows.examples.base[row], platforms[row]
    measured = np.exp(rows.residual[row]) * base
    told = np.abs(measured - base * np.exp(predictions.correction(weights, weights)))
    untold = np.abs(measured - base)
    kinds = rows.examples.x[row, columns[0]]
    pairs = Counter(name for name, _pair in {(platforms[one], rows.examples.pair[one]) for one in row})
    large = np.isin(names, [name for name, count in pairs.items() if count >= FEWEST_PAIRS])
    found = []
    for kind in np.unique(kinds[large & np.isfinite(kinds)]):
        of = large & (kinds == kind)
        with_it, without = (_by_platforms(rows, row[of], names[of], off[of]) for off in (told, untold))
        if len(set(names[of])) >= FEWEST_PLATFORMS and with_it < without:
            found.append(float(kind))
    return tuple(found)


def _carries(x: Floats, columns: Sequence[int], carried: tuple[float, ...] | None) -> Bools:
    """Whether each row's host is of a kind on which the correction carries over to other platforms; (R,)."""
    if carried is None or not columns:
        return np.ones(len(x), dtype=bool)
    return np.isin(x[:, columns[0]], carried)


def _pairs(rows: GroupedExamples, predictions: OutOfFoldPredictions) -> int:
    return len({rows.examples.pair[row] for row in predictions.row})


def _stacking_weights(
    rows: GroupedExamples, predictions: Sequence[OutOfFoldPredictions], known: bool
) -> StackingWeights:
    which = [prediction.known == known for prediction in predictions]
    return choose_stacking_weights(
        rows.examples,
        np.exp(rows.residual) * rows.examples.base,
        np.concatenate([one.row[mask] for one, mask in zip(predictions, which, strict=True)]),
        np.concatenate([one.parts[mask] for one, mask in zip(predictions, which, strict=True)]),
        np.concatenate([one.effects[mask] for one, mask in zip(predictions, which, strict=True)]),
    )


@dataclass(frozen=True, slots=True)
class _SingleRepeats:
    """Out-of-fold predictions of single repeats: `row` (K,) of the examples, `hints` (K, 4), and (K,) each of
    `correction`, `known`, `fold` and `platform`, "" where that was left out."""

    protocol: str
    row: Ints
    hints: Floats
    correction: Floats
    known: Bools
    fold: Ints
    platform: NDArray[np.str_]


def _single(
    examples: Examples,
    model: ResidualModel,
    predictions: OutOfFoldPredictions,
    group: Ints,
    carried: tuple[float, ...] | None,
) -> _SingleRepeats:
    row, at = expanded(predictions, group)
    elsewhere = predictions.protocol == "unseen_platform"
    correction = model.correction(predictions.parts, predictions.effects, predictions.known, elsewhere)[at]
    if elsewhere:
        correction = np.where(_carries(examples.x[row], _columns(examples.names, KINDS), carried), correction, 0.0)
    known = predictions.known[at]
    hints = hints_of(examples.base[row], correction, predictions.parts[at], known)
    platform = np.zeros(len(row), "U1") if elsewhere else _platforms(examples)[row]
    return _SingleRepeats(predictions.protocol, row, hints, correction, known, predictions.fold[at], platform)


def _all_even(part: Floats, size: Ints) -> bool:
    return bool((np.abs(part * size - 1) <= UNEVEN).all())


def _fitted(
    examples: Examples,
    target: str,
    model: ResidualModel,
    predictions: Sequence[tuple[OutOfFoldPredictions, Ints]],
    carried: tuple[float, ...] | None = None,
) -> FittedTarget:
    single = [_single(examples, model, one, group, carried) for one, group in predictions]
    row = np.concatenate([np.zeros(0, dtype=np.int64), *(one.row for one in single)])
    hints = np.concatenate([np.zeros((0, 4)), *(one.hints for one in single)])
    known = np.concatenate([np.zeros(0, dtype=bool), *(one.known for one in single)])
    correction = np.concatenate([np.zeros(0), *(one.correction for one in single)])
    platform = [name for one in single for name in one.platform.tolist()]
    fold = np.concatenate([np.zeros(0, dtype=np.int64), *(one.fold + 1000 * at for at, one in enumerate(single))])
    # Errors are those of the clipped prediction: the correction alone may be unrealistic, such as a fivefold gain.
    answered = np.clip(examples.base[row] * np.exp(correction), LOWEST[target], HIGHEST[target])
    error = np.log(examples.ratio[row]) - np.log(answered)
    scale = out_of_fold_scales(examples.x[row], hints, error, row, fold)
    host_columns = tuple(at for at, name in enumerate(examples.names) if name in HOST or name.startswith(PLATFORM))
    fitted = FittedTarget(
        target=target,
        model=model,
        calibration=calibrate(examples.x[row], hints, error, known, platform, row, fold, scale),
        low=_edge(examples.x, np.nanmin),
        high=_edge(examples.x, np.nanmax),
        limits=_columns(examples.names, LIMITS),
        most_instances=int(examples.size.max(initial=0)),
        ceiling=_ceiling(examples.ratio, target),
        figures={},
        kinds={at: tuple(np.unique(examples.x[:, at]).tolist()) for at in _columns(examples.names, KINDS)},
        sizes=_columns(examples.names, SIZES),
        sets=_columns(examples.names, SETS),
        loads=_columns(examples.names, LOADS),
        even=tuple(at for at in _columns(examples.names, WEIGHTS) if _all_even(examples.x[:, at], examples.size)),
        host_columns=host_columns,
        hosts=_told_apart(examples, host_columns),
        carried=carried,
    )
    scales = np.split(scale, np.cumsum([len(one.row) for one in single])[:-1]) if single else []
    scaled = zip(single, scales, strict=True)
    held_out = tuple(_held_out(examples, fitted, one, own) for one, own in scaled if len(one.row))
    return replace(fitted, held_out=held_out, figures={one.protocol: _figures(one) for one in held_out})


def _held_out(examples: Examples, fitted: FittedTarget, rows: _SingleRepeats, scale: Floats) -> HeldOutPredictions:
    """Predictions of left-out rows, with intervals by difficulty models that were fitted without these rows."""
    base = examples.base[rows.row]
    expected = np.clip(base * np.exp(rows.correction), LOWEST[fitted.target], HIGHEST[fitted.target])
    nowhere = np.zeros(len(base), dtype=bool)
    down, up = fitted.calibration.half_widths(
        examples.x[rows.row], rows.hints, rows.known, nowhere, rows.platform, scale
    )
    return HeldOutPredictions(
        target=fitted.target,
        protocol=rows.protocol,
        key=tuple(examples.key[at] if examples.key else examples.run[at] for at in rows.row),
        platform=tuple(_platforms(examples)[rows.row].tolist()),
        pair=tuple(examples.pair[at] for at in rows.row),
        measured=examples.ratio[rows.row],
        prior=base,
        expected=expected,
        lower=np.minimum(expected * np.exp(-down), SURE[fitted.target]),
        upper=np.minimum(expected * np.exp(up), fitted.ceiling),
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


def _platforms(examples: Examples) -> NDArray[np.str_]:
    """Each row's platform without its dataset; (R,)."""
    return np.array([label.partition("/")[2] for label in examples.platform], dtype=np.str_)


def _told_apart(examples: Examples, columns: Sequence[int]) -> Floats:
    """The hosts of training by these columns, UNKNOWN where nobody says, without those whose numbers several platforms
    share: there these numbers do not tell which platform it is. (P, H)."""
    hosts, which = np.unique(_described(examples.x, columns), axis=0, return_inverse=True)
    names = _platforms(examples)
    one = [len(set(names[which.ravel() == at])) == 1 for at in range(len(hosts))]
    return np.asarray(hosts[np.array(one, dtype=bool)])


def _described(x: Floats, columns: Sequence[int]) -> Floats:
    """These columns of the features, with UNKNOWN for nan, so that hosts can be compared; (R, H)."""
    return np.nan_to_num(x[:, columns], nan=UNKNOWN)


def _columns(names: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...]:
    return tuple(column for column, name in enumerate(names) if name in wanted)


def _prior_width(target: str, base: Floats) -> Floats:
    """Half width of the prior's interval for unknown workloads; (R,).

    It is twice the usual one, which covered three of five of the lab's pairs (dataset lab-colocations).
    """
    if target in {"throughput", "share"}:
        return prior_spread(base, np.ones(len(base), dtype=bool))
    times = LATENCY_TIMES if target == "latency" else JITTER_TIMES
    return 2 * times * PRIOR_HALF_WIDTH * np.maximum(0.5, np.log2(base))


def _ceiling(ratio: Floats, target: str) -> float:
    """The highest upper bound: no instance runs faster with neighbours than alone, apart from measured noise."""
    if target == "share":
        return 1.0
    if target != "throughput":
        return np.inf
    return float(max(HIGHEST[target], np.quantile(ratio, 0.995))) if len(ratio) else HIGHEST[target]


def _edge(x: Floats, pick: Callable[..., Any]) -> Floats:
    edge = np.full(x.shape[1], np.nan)
    seen = np.isfinite(x).any(axis=0)
    if seen.any():
        edge[seen] = pick(np.where(np.isfinite(x[:, seen]), x[:, seen], np.nan), axis=0)
    return edge
