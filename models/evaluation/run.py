"""Evaluates one dataset: runs protocols and collects their figures. Nothing is tuned here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.arrays import Bools, Floats
from models.data.dataset import DatasetError, load_dataset
from models.evaluation.baselines import COMPOSITIONS, LIMITS, OURS, Method, chosen, plain
from models.evaluation.results_table import (
    DEFAULT_PROTOCOLS,
    MORE,
    EvaluationProgress,
    FoldPredictions,
    Progress,
    ProtocolFold,
    average_ranks,
    by_role,
    check_protocol,
    figures_of,
    folds_of,
    inside,
    run_methods,
    why_skipped,
)
from models.features.examples import Examples, build_examples, further_metrics
from models.learning.fitting import LEAST_ROWS

READ = 0.02  # part of the progress
MOST_POINTS = 1500  # predictions that are kept for a chart


@dataclass(frozen=True, slots=True)
class ScatterPoints:
    """A sample of the model's predictions for a chart: measured and predicted T/B, and whether the interval held;
    (N,)."""

    measured: Floats
    predicted: Floats
    inside: Bools


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`figures` as JSON values in the shape of the contract, section 3; `points` by protocol."""

    figures: Mapping[str, Any]
    points: Mapping[str, ScatterPoints]


def examine(
    dataset: Path | Sequence[Path],
    protocols: Sequence[str] = DEFAULT_PROTOCOLS,
    progress: Progress | None = None,
    *,
    models: Sequence[str] = (),
) -> Evaluation:
    """Evaluate on a dataset, or on several as one; the figures have the shape of contract.md section 3.

    A protocol that the dataset does not allow (one platform, pairs only) is listed under `skipped`. DatasetError for an
    unknown protocol or model, and where the dataset is broken or too small.
    """
    say = progress or (lambda _what, _done: None)
    methods = chosen(models)
    for protocol in protocols:
        check_protocol(protocol)
    paths = [dataset] if isinstance(dataset, Path) else list(dataset)
    say(f"reading {', '.join(path.name for path in paths)}", 0.0)
    data = [load_dataset(path) for path in paths]
    examples = build_examples(data, further_metrics(data))
    name = " + ".join(one.name for one in data)
    if len(examples) < LEAST_ROWS:
        raise DatasetError(f"{name}: {len(examples)} measured throughput ratios, at least {LEAST_ROWS} are needed")
    protocol_figures, points = _protocols(
        examples, protocols, methods, lambda what, done: say(what, READ + (1 - READ) * done)
    )
    ranked = [one for protocol, one in protocol_figures.items() if protocol != "random_row"]  # which leaks
    figures: dict[str, Any] = {
        "dataset": name,
        "origin": ", ".join(dict.fromkeys(one.origin for one in data)),
        "rows": len(examples),
        "workloads": len(examples.workloads),
        "platforms": len(set(examples.platform)),
        "columns": len(examples.names),
        "limits": {name: text for name, text in LIMITS.items() if name in methods},
        "average_rank": average_ranks(ranked),
        "protocols": protocol_figures,
    }
    say("done", 1.0)
    return Evaluation(figures, points)


def _protocols(
    examples: Examples, protocols: Sequence[str], methods: Mapping[str, Method], say: Progress
) -> tuple[dict[str, Any], dict[str, ScatterPoints]]:
    composing = {name: plain(method) for name, method in COMPOSITIONS.items()}
    planned = {protocol: _usable(folds_of(examples, protocol)) for protocol in dict.fromkeys(protocols)}
    fits = sum(len(folds) for folds in planned.values())
    composed = sum(len(planned.get(protocol, ())) for protocol in MORE)
    clock = EvaluationProgress(say, dict.fromkeys(methods, fits) | dict.fromkeys(composing, composed))
    figures: dict[str, Any] = {}
    points: dict[str, ScatterPoints] = {}
    for protocol, folds in planned.items():
        if not folds:
            figures[protocol] = {"skipped": why_skipped(protocol), "models": {}}
            continue
        used = {**methods, **composing} if protocol in MORE else dict(methods)
        before = {name: clock.seconds(name) for name in used}
        predictions = run_methods(examples, folds, used, clock, protocol)
        figures[protocol] = figures_of(predictions, {name: clock.seconds(name) - before[name] for name in used})
        if protocol == "unseen_workload":
            for name, parts in by_role(predictions).items():
                figures[protocol]["models"][name] |= parts
        if (some := _points(predictions)) is not None:
            points[protocol] = some
    return figures, points


def _usable(folds: Sequence[ProtocolFold]) -> list[ProtocolFold]:
    return [fold for fold in folds if len(fold.train) >= LEAST_ROWS and len(fold.test)]


def _points(predictions: FoldPredictions) -> ScatterPoints | None:
    guess = predictions.guesses.get(OURS)
    held = inside(predictions, guess) if guess else None
    if guess is None or held is None:
        return None
    some = np.sort(np.random.default_rng(0).permutation(len(predictions))[:MOST_POINTS])
    return ScatterPoints(predictions.rows.ratio[some], guess.expected[some], held[some])
