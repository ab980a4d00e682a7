"""The results of one protocol: figures of every model with intervals, beside the best baseline and the noise floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.arrays import Bools, Floats
from models.evaluation.bootstrap import interval, resampled_means
from models.evaluation.compositions import COMPOSITIONS
from models.evaluation.error_metrics import absolute, by_label, by_predicted, errors, rounded
from models.evaluation.method_runs import FoldPredictions
from models.evaluation.methods import OURS, IntervalPrediction
from models.evaluation.noise_floor import NoiseFloor
from models.evaluation.pairwise_ranking import PairwiseRanking
from models.evaluation.row_groups import codes

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
