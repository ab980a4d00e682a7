"""The results of one protocol: figures of every model with intervals, beside the best baseline and the noise floor."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.dataset import DatasetError
from models.evaluation.baselines import COMPOSITIONS, OURS, IntervalPrediction, Method
from models.evaluation.error_metrics import (
    NoiseFloor,
    PairwiseRanking,
    absolute,
    by_label,
    by_predicted,
    codes,
    errors,
    interval,
    limiting,
    repeats,
    resampled_means,
    rounded,
)
from models.features.examples import Examples

# Progress of an evaluation and its remaining time, estimated from how long the same methods took before.

Progress = Callable[[str, float], None]  # (what is being done, fraction done 0-1)


class EvaluationProgress:
    """Counts down a known amount of work: `work` says how often each step will run."""

    def __init__(self, say: Progress, work: Mapping[str, int], *, now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._left = dict(work)
        self._now = now
        self._taken: dict[str, list[float]] = defaultdict(list)
        self._shown = 0.0

    @contextmanager
    def doing(self, name: str, where: str) -> Iterator[None]:
        """Context manager: report the step that begins, and measure its time."""
        self._say(f"{where}, {name}{self._time_left()}", self._fraction())
        begin = self._now()
        yield
        self._taken[name].append(self._now() - begin)
        self._left[name] -= 1

    def seconds(self, name: str) -> float:
        """The total time of this step so far, in seconds."""
        return sum(self._taken[name])

    def _remaining(self) -> float | None:
        """Remaining seconds; None until every remaining step has run once."""
        if any(count and not self._taken[name] for name, count in self._left.items()):
            return None
        return sum(count * self.seconds(name) / len(self._taken[name]) for name, count in self._left.items() if count)

    def _time_left(self) -> str:
        left = self._remaining()
        if left is None:
            return ""
        return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"

    def _fraction(self) -> float:
        left, done = self._remaining(), sum(sum(times) for times in self._taken.values())
        if left is None:
            finished = sum(len(times) for times in self._taken.values())
            fraction = finished / max(finished + sum(self._left.values()), 1)
        else:
            fraction = done / (done + left) if done + left > 0 else 1.0
        self._shown = max(self._shown, min(fraction, 1.0))  # a bar that goes back says nothing
        return self._shown


# Training and test rows under each protocol; all protocols but `random_row` keep repeats of a pair together.

PROTOCOLS = (
    "random_row", "unseen_pair", "unseen_workload", "unseen_platform", "unseen_setting", "pairs_to_n", "n_up_to_k",
)  # fmt: skip
MORE = frozenset({"pairs_to_n", "n_up_to_k"})  # judged on more instances than trained on
DEFAULT_PROTOCOLS = ("unseen_pair", "unseen_workload")
RANDOM_FOLDS = 5
PAIR_FOLDS = 10
MOST_FOLDS = 24  # one workload, platform or setting per fold up to here, groups of them beyond
MANY_ROWS, FEW_FOLDS = 5000, 5  # beyond so many rows a fold is large enough, and every fit takes its time


@dataclass(frozen=True, slots=True)
class ProtocolFold:
    """Training rows, test rows, and the workloads that `unseen_workload` left out of training."""

    train: Ints
    test: Ints
    left_out: frozenset[str] = frozenset()


def folds_of(examples: Examples, protocol: str) -> list[ProtocolFold]:
    """The folds of a protocol; none where nothing can be left out. DatasetError for an unknown protocol."""
    check_protocol(protocol)
    rows = len(examples)
    few = rows > MANY_ROWS
    if protocol == "random_row":
        return _by_number(np.random.default_rng(0).permutation(rows) % RANDOM_FOLDS)
    if protocol == "unseen_pair":
        return _left_out(examples.pair, FEW_FOLDS if few else PAIR_FOLDS)
    if protocol == "unseen_workload":
        return _workloads(examples, FEW_FOLDS if few else MOST_FOLDS)
    if protocol == "unseen_platform":
        return _left_out(examples.platform, FEW_FOLDS if few else MOST_FOLDS)
    if protocol == "unseen_setting":
        return _left_out(settings_of(examples), FEW_FOLDS if few else MOST_FOLDS)
    sizes = np.unique(examples.size[examples.size > 2]).tolist()
    most = [2] if protocol == "pairs_to_n" else sizes[:-1]
    parts = [(examples.size <= one, examples.size > one) for one in most]
    return [ProtocolFold(np.flatnonzero(train), np.flatnonzero(test)) for train, test in parts]


def check_protocol(protocol: str) -> None:
    """Raise DatasetError for an unknown protocol."""
    if protocol not in PROTOCOLS:
        raise DatasetError(f"protocol {protocol!r} is none of {', '.join(PROTOCOLS)}")


def why_skipped(protocol: str) -> str:
    """Why a dataset has no fold of a protocol."""
    return {
        "unseen_platform": "the dataset has one platform only",
        "unseen_setting": "the dataset has one setting only",
        "pairs_to_n": "the dataset has no run of three or more instances",
        "n_up_to_k": "the dataset has no runs of two different sizes above two instances",
    }.get(protocol, "too few rows to train on")


def settings_of(examples: Examples) -> list[str]:
    """The set of settings in each run, without counts: a run of three with the same pinning is no new setting."""
    return [" ".join(sorted(set(setting.split(" ")))) for setting in examples.setting]


def _left_out(labels: Sequence[str], most: int) -> list[ProtocolFold]:
    """One fold per label, or per group of labels where there are more than `most`; the fold leaves it out."""
    names = sorted(set(labels))
    number = dict(zip(names, _spread(len(names), most), strict=True))
    return _by_number(np.array([number[label] for label in labels], dtype=np.int64)) if len(names) > 1 else []


def _workloads(examples: Examples, most: int) -> list[ProtocolFold]:
    """One fold per workload (or group of workloads); it leaves out all its runs. A row may be in several tests."""
    pairs = list(dict.fromkeys(examples.pair))
    names = sorted({name for pair in pairs for name in pair.split("+")})
    group_of = dict(zip(names, _spread(len(names), most), strict=True))
    number = codes(examples.pair)
    folds = []
    for group in range(min(most, len(names))):
        touched = np.array([any(group_of[name] == group for name in pair.split("+")) for pair in pairs], dtype=bool)
        inside = touched[number]
        if inside.any() and not inside.all():
            left_out = frozenset(name for name in names if group_of[name] == group)
            folds.append(ProtocolFold(np.flatnonzero(~inside), np.flatnonzero(inside), left_out))
    return folds


def _spread(count: int, most: int) -> Ints:
    """The fold of each of `count` things, in order where each has its own, else by a seeded shuffle."""
    return np.arange(count) if count <= most else np.random.default_rng(1).permutation(count) % most


def _by_number(number: Ints) -> list[ProtocolFold]:
    folds = [ProtocolFold(np.flatnonzero(number != one), np.flatnonzero(number == one)) for one in np.unique(number)]
    return [fold for fold in folds if len(fold.train)]


# Runs methods over the folds of a protocol and collects their predictions of the test rows.


@dataclass(frozen=True, slots=True)
class FoldPredictions:
    """J predictions of test rows: `row` (J,) indexes the examples, `rows` are they without features, `guesses` by
    method; `unseen_victim` (J,) where the fold left the victim's workload out; `resource` and `repeat` (J,) as in
    labels."""

    row: Ints
    rows: Examples
    guesses: Mapping[str, IntervalPrediction]
    unseen_victim: Bools
    resource: tuple[str, ...]
    repeat: Ints
    folds: int

    def __len__(self) -> int:
        return len(self.row)


def run_methods(
    examples: Examples,
    folds: Sequence[ProtocolFold],
    methods: Mapping[str, Method],
    clock: EvaluationProgress,
    where: str,
) -> FoldPredictions:
    """Fit every method on each fold's training rows and predict its test rows; all methods share the folds."""
    predictions: dict[str, list[IntervalPrediction]] = {name: [] for name in methods}
    for number, fold in enumerate(folds):
        train, test = examples.take(fold.train), examples.take(fold.test)
        for name, method in methods.items():
            with clock.doing(name, f"{where}: fold {number + 1} of {len(folds)}"):
                predictions[name].append(method(train, test))
    row = np.concatenate([fold.test for fold in folds])
    resource = limiting(examples)
    # features of all predictions would be the largest thing in memory, and are not needed any more
    rows = replace(examples, x=np.zeros((len(examples), 0))).take(row)
    unseen = [examples.victim[at] in fold.left_out for fold in folds for at in fold.test]
    return FoldPredictions(
        row=row,
        rows=rows,
        guesses={name: joined(guesses) for name, guesses in predictions.items()},
        unseen_victim=np.array(unseen, dtype=bool),
        resource=tuple(resource[at] for at in row),
        repeat=repeats(examples)[row],
        folds=len(folds),
    )


def joined(guesses: Sequence[IntervalPrediction]) -> IntervalPrediction:
    """The predictions of several folds joined into one."""
    lower = [guess.lower for guess in guesses if guess.lower is not None]
    upper = [one.upper for one in guesses if one.upper is not None]
    expected = np.concatenate([one.expected for one in guesses])
    if len(lower) < len(guesses) or len(upper) < len(guesses):
        return IntervalPrediction(expected)
    return IntervalPrediction(expected, np.concatenate(lower), np.concatenate(upper))


Means = Mapping[str, Mapping[str, Floats | None]]  # model → figure → resampled means

COMPARED = ("mae", "mape")


def figures_of(predictions: FoldPredictions, seconds: Mapping[str, float]) -> dict[str, Any]:
    """The figures of one protocol (contract, section 3, and more); `seconds` is the time that each method took.

    Intervals are 95 %, from 2,000 resamples of whole pairs; differences are paired, below 0 where ours errs less.
    """
    ranking = PairwiseRanking.of(predictions.rows, predictions.row)
    noise, repeated = _noise(predictions)
    means = _resampled(predictions)
    table = {}
    for name, guess in predictions.guesses.items():
        table[name] = {
            **errors(predictions.rows, guess.expected, ranking),
            **_coverage(predictions, guess),
            "error_over_noise": noise.times(predictions.rows, repeated, guess.expected),
            "intervals": {figure: interval(values) for figure, values in means[name].items()},
            "seconds": round(seconds.get(name, 0.0), 2),
        }
    models = {name: one for name, one in table.items() if name not in COMPOSITIONS}
    composed = {name: one for name, one in table.items() if name in COMPOSITIONS}
    for name, rank in ranks(models).items():
        models[name]["rank"] = rank
    best = best_of(models)
    figures: dict[str, Any] = {
        "rows": len(predictions),
        "folds": predictions.folds,
        "noise": noise.to_json(),
        "best_baseline": best,
        "difference": _differences(models, means, best),
        "models": models,
    }
    if composed:
        simple = best_of(composed)
        figures |= {
            "compositions": composed,
            "best_composition": simple,
            "difference_to_composition": _differences({**models, **composed}, means, simple),
        }
    return figures | _broken_down(predictions)


def ranks(models: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Each model's rank, 1 = best: the mean of its ranks by mae and by mape; ties share a rank."""
    from scipy.stats import rankdata

    places = [rankdata([model[figure] for model in models.values()]) for figure in COMPARED]
    return {name: rounded(np.mean([place[at] for place in places])) for at, name in enumerate(models)}


def best_of(models: Mapping[str, Mapping[str, Any]]) -> dict[str, str] | None:
    """The baseline with the lowest error, by figure; None where there are no baselines."""
    others = [name for name in models if name != OURS]
    if not others:
        return None
    return {figure: min(others, key=lambda name: models[name][figure]) for figure in COMPARED}


def by_role(predictions: FoldPredictions) -> dict[str, dict[str, Any]]:
    """Errors under unseen_workload, separately where the left-out workload is the victim and where it is a
    neighbour."""
    found: dict[str, dict[str, Any]] = {name: {} for name in predictions.guesses}
    for label, mask in (("unseen_victim", predictions.unseen_victim), ("unseen_neighbour", ~predictions.unseen_victim)):
        at = np.flatnonzero(mask)
        part = predictions.rows.take(at)
        ranking = PairwiseRanking.of(part, predictions.row[at]) if len(at) else None
        for name, guess in predictions.guesses.items():
            found[name][label] = errors(part, guess.expected[at], ranking) if len(at) else None
    return found


def inside(predictions: FoldPredictions, guess: IntervalPrediction) -> Bools | None:
    """Whether each prediction's interval contains the measured value; None where the method gives no intervals."""
    if guess.lower is None or guess.upper is None:
        return None
    return np.asarray((predictions.rows.ratio >= guess.lower) & (predictions.rows.ratio <= guess.upper))


def _noise(predictions: FoldPredictions) -> tuple[NoiseFloor, Bools]:
    """The noise floor of the test rows, each measurement once, and which predictions are of repeated rows."""
    once = np.unique(predictions.row, return_index=True)[1]
    noise = NoiseFloor.of(predictions.rows.take(once), predictions.repeat[once])
    marked = np.zeros(int(predictions.row.max()) + 1, dtype=bool)
    marked[predictions.row[once]] = noise.repeated
    return noise, marked[predictions.row]


def _coverage(predictions: FoldPredictions, guess: IntervalPrediction) -> dict[str, Any]:
    held = inside(predictions, guess)
    if held is None or guess.lower is None or guess.upper is None:
        return {"coverage": None, "interval_width": None}
    return {"coverage": rounded(held.mean()), "interval_width": rounded((guess.upper - guess.lower).mean())}


def _resampled(predictions: FoldPredictions) -> Means:
    """Resampled means of every model's figures, all from the same draws of pairs."""
    columns: dict[tuple[str, str], Floats] = {}
    for name, guess in predictions.guesses.items():
        off, relative = absolute(predictions.rows.ratio, guess.expected)
        columns |= {(name, "mae"): off, (name, "mape"): relative}
        held = inside(predictions, guess)
        if held is not None:
            columns[name, "coverage"] = held.astype(np.float64)
    means = resampled_means(codes(predictions.rows.pair), np.stack(list(columns.values()), axis=1))
    found: dict[str, dict[str, Floats | None]] = {
        name: {"mae": None, "mape": None, "coverage": None} for name in predictions.guesses
    }
    for at, (name, figure) in enumerate(columns):
        found[name][figure] = None if means is None else means[:, at]
    return found


def _differences(models: Mapping[str, Any], means: Means, best: Mapping[str, str] | None) -> dict[str, Any] | None:
    """Ours minus the best baseline by figure, with the interval of the paired difference."""
    if best is None or OURS not in models:
        return None
    found = {}
    for figure, name in best.items():
        ours, theirs = means[OURS][figure], means[name][figure]
        found[figure] = {
            "baseline": name,
            "value": rounded(models[OURS][figure] - models[name][figure]),
            "interval": interval(None if ours is None or theirs is None else ours - theirs),
        }
    return found


def _broken_down(predictions: FoldPredictions) -> dict[str, Any]:
    """The model's errors by platform, limiting resource and predicted value."""
    guess = predictions.guesses.get(OURS)
    held = inside(predictions, guess) if guess else None
    if guess is None or held is None:
        return {}
    common = (predictions.rows.ratio, guess.expected, predictions.rows.base, held)
    return {
        "by_platform": by_label(predictions.rows.platform, *common),
        "by_resource": by_label(predictions.resource, *common),
        "by_predicted": by_predicted(predictions.rows.ratio, guess.expected, held),
    }


def average_ranks(protocols: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Every model's mean rank over the evaluations that include it; the best first."""
    tables = [protocol["models"] for protocol in protocols if protocol["models"]]
    names = [name for name in (tables[0] if tables else ()) if all(name in table for table in tables)]
    found = {name: rounded(np.mean([table[name]["rank"] for table in tables])) for name in names}
    return dict(sorted(found.items(), key=lambda item: item[1]))
