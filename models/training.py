"""Trains a model: reads dataset directories, builds examples, fits, calibrates and writes an artifact with its card."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from models.data.dataset import Dataset, DatasetError, load_dataset
from models.data.dataset_rules import check_learnable
from models.data.window_dataset import holds_windows
from models.evaluation.gate import gate
from models.executor import executor
from models.features.examples import OUTCOME_OF_TARGET, build_examples, further_metrics, weighted
from models.features.feature_matrix import usual_host, with_probe_features
from models.learning import artifact
from models.learning.fitted_target import FittedTarget
from models.learning.fitting import LEAST_ROWS, fit_target
from models.learning.learned_predictor import LearnedPredictor

Progress = Callable[[str, float], None]
MANY_COLOCATIONS = 5000  # with fewer a training is over about when another process has started
LIBRARIES = ("lightgbm", "numpy", "scikit-learn", "scipy")


def train(
    datasets: Sequence[Path],
    model_dir: Path,
    progress: Progress | None = None,
    *,
    processes: int | None = None,
    cluster: str | None = None,
) -> Path:
    """Fit on dataset directories and write an artifact below `model_dir`; returns its directory.

    The fits run in so many `processes`, None = in one for few co-locations and else in one for each CPU, or on the Dask
    `cluster` with this address; the model is the same. Its errors are those of `models.executor.executor`.
    DatasetError when a dataset is broken or all of them together hold too few measured rows to learn from, OSError
    when the artifact cannot be written.
    """
    say = progress or (lambda _what, _done: None)
    say("reading datasets", 0.0)
    loaded = [load_dataset(path) for path in sorted(datasets, key=holds_windows)]
    check_learnable(loaded)
    for one in loaded:
        if one.artefacts.rows:
            say(f"{one.name}: {one.artefacts}", 0.02)
    artifact.check_writable(model_dir)
    if processes is None and sum(len(one.colocations) for one in loaded) < MANY_COLOCATIONS:
        processes = 1
    with executor(processes, cluster) as run:
        predictor = fit_predictor(loaded, progress=lambda what, done: say(what, 0.05 + 0.9 * done), run=run)
    say("writing the artifact", 0.97)
    path = artifact.save(model_dir, predictor, _card(loaded, predictor))
    say("done", 1.0)
    return path


def fit_predictor(
    datasets: Sequence[Dataset],
    *,
    targets: Collection[str] = tuple(OUTCOME_OF_TARGET),
    seed: int = 0,
    progress: Progress | None = None,
    run: Executor | None = None,
) -> LearnedPredictor:
    """Fit throughput and, where there is data, latency, jitter and share, as far as they are among `targets`; in `run`,
    None = in this process.

    DatasetError where a dataset is kept to judge, or all of them hold too few rows.
    """
    check_learnable(datasets)
    say = progress or (lambda _what, _done: None)
    datasets = [with_probe_features(one) for one in datasets]
    further = further_metrics(datasets)
    examples = build_examples(datasets, further)
    windows = weighted(build_examples(datasets, further, target="share"))
    if max(len(examples), len(windows)) < LEAST_ROWS:
        names = ", ".join(dataset.name for dataset in datasets) or "no dataset"
        shares, of_one = (f" and {len(windows)} shares", " of one") if windows else ("", "")
        few = f"{len(examples)} measured throughput ratios{shares}, at least {LEAST_ROWS}{of_one} are needed"
        raise DatasetError(f"{names}: {few}")
    rows_of = {"throughput": examples}
    for name in (one for one in OUTCOME_OF_TARGET if one != "share" and one in targets):
        later = build_examples(datasets, further, target=name)
        if len(later) >= LEAST_ROWS:
            rows_of[name] = later
    if "share" in targets and len(windows) >= LEAST_ROWS:
        rows_of["share"] = windows
    fitted: dict[str, FittedTarget] = {}
    for number, (name, rows) in enumerate(rows_of.items()):

        def step(what: str, done: float, number: int = number) -> None:
            say(what, (number + done) / len(rows_of))

        fitted[name] = fit_target(rows, name, seed=seed, progress=step, run=run)
    reference: dict[str, list[dict[str, float]]] = {}
    for dataset in datasets:
        for profile in dataset.profiles:
            reference.setdefault(profile.name, []).append(dict(profile.metrics))
    origins = sorted({dataset.origin for dataset in datasets})
    return LearnedPredictor(
        version=_version(datasets, fitted),
        origin=origins[0] if len(origins) == 1 else "+".join(origins),
        further=further,
        throughput=fitted["throughput"],
        latency=fitted.get("latency"),
        jitter=fitted.get("jitter"),
        share=fitted.get("share"),
        reference=reference,
        platforms={
            name: dict(numbers) for dataset in datasets for name, numbers in dataset.platform_numbers.items() if numbers
        }
        | ({"": usual} if (usual := usual_host(datasets)) else {}),
    )


def _version(datasets: Sequence[Dataset], targets: Mapping[str, FittedTarget]) -> str:
    """A name made of the training data and what was fitted: the same training gives the same version."""
    digest = hashlib.sha256()
    for dataset in datasets:
        digest.update(dataset.fingerprint.encode())
    for target in targets.values():
        digest.update(json.dumps(artifact.target_json(target), sort_keys=True).encode())
    return f"m-{digest.hexdigest()[:12]}"


def _card(datasets: Sequence[Dataset], predictor: LearnedPredictor) -> dict[str, Any]:
    origins = Counter(dataset.origin for dataset in datasets for _ in dataset.colocations)
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "datasets": [
            {
                "name": dataset.name,
                "origin": dataset.origin,
                "sha256": dataset.fingerprint,
                "colocations": len(dataset.colocations),
                "artefacts": asdict(dataset.artefacts),
                "machine": str(dataset.meta.get("machine", ""))[:300],
            }
            for dataset in datasets
        ],
        "origin_mix": {origin: round(count / origins.total(), 4) for origin, count in sorted(origins.items())},
        "figures": {name: target.figures for name, target in predictor.targets.items()},
        "believed": {name: {"elsewhere": target.trust} for name, target in predictor.targets.items()},
        "refusals": list(
            gate([table for target in predictor.targets.values() for table in target.held_out], None).refusals
        ),
        "interval": "90 % split-conformal, calibrated on left-out campaigns, workloads and pairs",
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }
