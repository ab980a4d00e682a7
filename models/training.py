"""From dataset directories to an artifact: examples, fit, calibration, card."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from models import artifact
from models.dataset import Dataset, DatasetError, load_dataset
from models.estimators import LEAST_ROWS
from models.examples import build_examples, metrics_of
from models.fitted import FittedTarget, fit_target
from models.learned import LearnedPredictor

Progress = Callable[[str, float], None]
LIBRARIES = ("lightgbm", "numpy", "scikit-learn", "scipy")


def train(datasets: Sequence[Path], model_dir: Path, progress: Progress | None = None) -> Path:
    """Fit on dataset directories and write an artifact below `model_dir`; returns its directory.

    DatasetError when a dataset is broken or all of them together hold too few measured rows to learn from.
    """
    say = progress or (lambda _what, _done: None)
    say("reading datasets", 0.0)
    loaded = [load_dataset(path) for path in datasets]
    predictor = fit_predictor(loaded, progress=lambda what, done: say(what, 0.05 + 0.9 * done))
    say("writing the artifact", 0.97)
    path = artifact.save(model_dir, predictor, _card(loaded, predictor))
    say("done", 1.0)
    return path


def fit_predictor(datasets: Sequence[Dataset], *, seed: int = 0, progress: Progress | None = None) -> LearnedPredictor:
    """Fit throughput and, where there is data, latency."""
    say = progress or (lambda _what, _done: None)
    metrics = metrics_of(datasets)
    examples = build_examples(datasets, metrics)
    if len(examples) < LEAST_ROWS:
        names = ", ".join(dataset.name for dataset in datasets) or "no dataset"
        raise DatasetError(f"{names}: {len(examples)} measured throughput ratios, at least {LEAST_ROWS} are needed")
    throughput = fit_target(examples, "throughput", seed=seed, progress=lambda what, done: say(what, done / 2))
    late = build_examples(datasets, metrics, target="latency")
    latency = (
        fit_target(late, "latency", seed=seed, progress=lambda what, done: say(what, 0.5 + done / 2))
        if len(late) >= LEAST_ROWS
        else None
    )
    reference: dict[str, list[dict[str, float]]] = {}
    for dataset in datasets:
        for profile in dataset.profiles:
            reference.setdefault(profile.name, []).append(dict(profile.metrics))
    origins = sorted({dataset.origin for dataset in datasets})
    return LearnedPredictor(
        version=_version(datasets, throughput, latency),
        origin=origins[0] if len(origins) == 1 else "+".join(origins),
        metrics=metrics,
        throughput=throughput,
        latency=latency,
        reference=reference,
    )


def _version(datasets: Sequence[Dataset], *targets: FittedTarget | None) -> str:
    """A name made of the training data and the fitted trees: the same training gives the same version."""
    digest = hashlib.sha256()
    for dataset in datasets:
        digest.update(dataset.fingerprint.encode())
    for target in targets:
        if target is not None and target.model.booster is not None:
            digest.update(target.model.booster.model_to_string().encode())
            digest.update(json.dumps(target.calibration.to_json(), sort_keys=True).encode())
    return f"m-{digest.hexdigest()[:12]}"


def _card(datasets: Sequence[Dataset], predictor: LearnedPredictor) -> dict[str, Any]:
    targets = {"throughput": predictor.throughput, "latency": predictor.latency}
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "datasets": [
            {
                "name": dataset.name,
                "origin": dataset.origin,
                "sha256": dataset.fingerprint,
                "colocations": len(dataset.colocations),
                "machine": str(dataset.meta.get("machine", ""))[:300],
            }
            for dataset in datasets
        ],
        "figures": {name: target.figures for name, target in targets.items() if target is not None},
        "interval": "90 % split-conformal, calibrated on left-out pairs and left-out workloads",
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }
