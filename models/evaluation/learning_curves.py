"""Learning curves: error by the number of measured pairs of a new workload, and by the share of all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.arrays import Floats, Ints
from models.evaluation.bootstrap import interval, resampled_means
from models.evaluation.error_metrics import absolute, rounded
from models.evaluation.method_runs import joined
from models.evaluation.methods import IntervalPrediction, Method
from models.evaluation.progress import EvaluationProgress, Progress
from models.evaluation.protocols import ProtocolFold
from models.evaluation.row_groups import codes
from models.features.examples import Examples

STEPS = (0, 1, 2, 4, 8)  # measured pairs of a new workload
SHARES = (0.1, 0.2, 0.4, 0.6, 0.8)  # of all pairs
JUDGED_SHARE = 0.2  # of all pairs, never among the measured
LEAST_JUDGED = 2  # pairs of a new workload
WORKLOAD_DRAWS, SHARE_DRAWS = 6, 3
MOST_ROWS = 3000  # that a draw uses, whole pairs at random, so that the time is bounded
LEAST_TRAINED = 8


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """The folds of a learning curve: one per draw for every value of `x`. All folds of a draw have the same test
    rows."""

    x: tuple[float, ...]
    draws: tuple[tuple[ProtocolFold, ...], ...]  # by draw, by x


def curves(examples: Examples, methods: Mapping[str, Method], progress: Progress) -> dict[str, Any]:
    """Both curves as JSON values: x, draws, and per model mae and mape with their intervals; or why there is none."""
    random = np.random.default_rng(3)
    planned = {"measured_pairs": new_workload(examples, random), "share_of_pairs": share_of_pairs(examples, random)}
    fits = sum(len(draw) for curve in planned.values() if curve for draw in curve.draws)
    clock = EvaluationProgress(progress, dict.fromkeys(methods, fits))
    return {
        name: _run(examples, curve, methods, clock, name.replace("_", " "))
        if curve
        else {"skipped": "too few pairs of workloads were measured"}
        for name, curve in planned.items()
    }


def new_workload(examples: Examples, random: np.random.Generator) -> LearningCurve | None:
    """A new workload with 0, 1, 2, ... of its pairs in training and the same other pairs in the test; None with too
    few.

    All runs without the workload are in training, up to MOST_ROWS rows.
    """
    pairs = _pairs(examples)
    partners = {name: [pair for pair in pairs if name in pair.split("+")] for name in examples.workloads}
    room = sorted((len(found) - LEAST_JUDGED for found in partners.values()), reverse=True)
    most = room[(len(room) - 1) // 2] if room else -1  # at least half of the workloads have so many
    steps = tuple(step for step in STEPS if step <= most)
    able = [name for name, found in partners.items() if steps and len(found) - LEAST_JUDGED >= steps[-1]]
    if len(steps) < 2:
        return None
    draws = []
    for name in random.permutation(able)[:WORKLOAD_DRAWS]:
        mine = [partners[name][at] for at in random.permutation(len(partners[name]))]
        others = np.flatnonzero(~examples.involves(name))
        known = _bounded(examples, others, random)
        test_rows = _rows(examples, mine[steps[-1] :])
        draws.append(tuple(ProtocolFold(np.union1d(known, _rows(examples, mine[:step])), test_rows) for step in steps))
    return _usable(steps, draws)


def share_of_pairs(examples: Examples, random: np.random.Generator) -> LearningCurve | None:
    """A growing share of all pairs in training, each containing the smaller ones; the test rows stay the same."""
    draws = []
    for _ in range(SHARE_DRAWS):
        rows = _bounded(examples, np.flatnonzero(examples.size == 2), random)
        pairs = list(dict.fromkeys(examples.pair[row] for row in rows))
        order = [pairs[at] for at in random.permutation(len(pairs))]
        kept = round(len(order) * (1 - JUDGED_SHARE))
        test_rows = np.intersect1d(rows, _rows(examples, order[kept:]))
        draws.append(
            tuple(
                ProtocolFold(
                    np.intersect1d(rows, _rows(examples, order[: min(round(len(order) * share), kept)])), test_rows
                )
                for share in SHARES
            )
        )
    return _usable(SHARES, draws)


def _usable(x: Sequence[float], draws: Sequence[tuple[ProtocolFold, ...]]) -> LearningCurve | None:
    """Drops values of x where a draw has too few training rows; None where fewer than two values are left."""
    keep = [at for at in range(len(x)) if draws and all(len(draw[at].train) >= LEAST_TRAINED for draw in draws)]
    if len(keep) < 2 or not all(len(draw[0].test) for draw in draws):
        return None
    return LearningCurve(tuple(x[at] for at in keep), tuple(tuple(draw[at] for at in keep) for draw in draws))


def _run(
    examples: Examples, curve: LearningCurve, methods: Mapping[str, Method], clock: EvaluationProgress, where: str
) -> dict[str, Any]:
    said: dict[str, list[list[IntervalPrediction]]] = {name: [[] for _ in curve.x] for name in methods}
    for number, draw in enumerate(curve.draws):
        for at, fold in enumerate(draw):
            train, test = examples.take(fold.train), examples.take(fold.test)
            for name, method in methods.items():
                with clock.doing(name, f"curve of {where}: draw {number + 1} of {len(curve.draws)}"):
                    said[name][at].append(method(train, test))
    test_rows = np.concatenate([draw[0].test for draw in curve.draws])
    measured = examples.ratio[test_rows]
    cluster = codes(examples.pair[row] for row in test_rows)
    expected = {name: [joined(guesses).expected for guesses in at_x] for name, at_x in said.items()}
    return {
        "x": list(curve.x),
        "draws": len(curve.draws),
        "rows": len(test_rows),
        "trained_rows": [
            round(float(np.mean([len(draw[at].train) for draw in curve.draws]))) for at in range(len(curve.x))
        ],
        "models": {name: _figures(measured, guesses, cluster) for name, guesses in expected.items()},
    }


def _figures(measured: Floats, guesses: Sequence[Floats], cluster: Ints) -> dict[str, Any]:
    off = np.stack([np.stack(absolute(measured, guess)) for guess in guesses])  # (x, 2, J)
    means = resampled_means(cluster, off.reshape(-1, len(measured)).T)
    edges = [interval(None if means is None else means[:, at]) for at in range(2 * len(guesses))]
    return {
        "mae": [rounded(one[0].mean()) for one in off],
        "mape": [rounded(one[1].mean()) for one in off],
        "mae_intervals": edges[0::2],
        "mape_intervals": edges[1::2],
    }


def _pairs(examples: Examples) -> list[str]:
    """The measured pairs (runs of two instances), in order of appearance."""
    return list(dict.fromkeys(pair for pair, size in zip(examples.pair, examples.size, strict=True) if size == 2))


def _rows(examples: Examples, pairs: Sequence[str]) -> Ints:
    wanted = set(pairs)
    return np.flatnonzero([pair in wanted for pair in examples.pair])


def _bounded(examples: Examples, rows: Ints, random: np.random.Generator) -> Ints:
    """These rows, or a random subset of whole pairs with at most MOST_ROWS rows."""
    if len(rows) <= MOST_ROWS:
        return rows
    pair = codes(examples.pair[row] for row in rows)
    order = random.permutation(int(pair.max()) + 1)
    taken = order[np.cumsum(np.bincount(pair)[order]) <= MOST_ROWS]
    return np.asarray(rows[np.isin(pair, taken)])
