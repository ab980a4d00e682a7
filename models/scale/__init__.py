"""Training on more rows than fit into memory, or on a Dask cluster: boosters use all rows, other parts a sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from models.data.dataset import Dataset, colocations_from
from models.data.tables import TableRow, find_table
from models.features.examples import metrics_of
from models.features.repeats import GroupedExamples
from models.learning.boosting import booster_options
from models.scale.boosting import Trainer, fit_boosters, train_here
from models.scale.feature_file import FeatureFile, MeasuredRows
from models.scale.first_pass import ROWS_AT_ONCE, FirstPass, choose, picked, survey_of
from models.scale.run_stream import count_rows, read_run_batches

Progress = Callable[[str, float], None]

LARGE = 300_000  # rows of co-locations beyond which tables are read as a stream
SAMPLE_ROWS = 20_000  # measured rows for effects, cross-validation and calibration


@dataclass(frozen=True, slots=True)
class StreamedDatasets:
    """The result of streaming tables: `datasets` have a sample of whole runs as co-locations, `boosters` by target
    saw every row, and `card` says how many."""

    datasets: tuple[Dataset, ...]
    boosters: Mapping[str, lightgbm.Booster]
    card: Mapping[str, Any]


def is_large(paths: Sequence[Path]) -> bool:
    """Whether the tables of co-locations have more than LARGE rows together; broken directories count as empty."""
    tables = [find_table(Path(path), "colocations") for path in paths if Path(path).is_dir()]
    return sum(count_rows(table) for table in tables if table) > LARGE


def stream(
    paths: Sequence[Path], *, scheduler: str | None = None, seed: int = 0, progress: Progress | None = None
) -> StreamedDatasets:
    """Check dataset directories, train a booster per target on all their rows, and draw the sample for all else.

    With `scheduler` (tcp://host:port) the boosters are trained on that Dask cluster, else in this process.
    DatasetError as `load_dataset` raises it; ClusterError when the cluster fails; OSError when the disk is full.
    """
    say = progress or (lambda _what, _done: None)
    with ExitStack() as stack:
        trainer: Trainer = train_here
        workers = 0
        if scheduler is not None:  # first: who cannot reach it need not wait for a long table
            from models.scale.cluster import connected

            cluster = stack.enter_context(connected(scheduler))
            trainer, workers = cluster.train, len(cluster.workers)
        surveys = []
        for number, path in enumerate(paths):
            say("checking datasets", 0.2 * number / len(paths))
            surveys.append(survey_of(path))
        say("drawing a sample of runs", 0.2)
        datasets = sample(surveys, seed, SAMPLE_ROWS)
        boosters, rows = fit_boosters(
            surveys, metrics_of(datasets), trainer, seed=seed, progress=lambda what, done: say(what, 0.25 + 0.75 * done)
        )
    card = {
        "rows": dict(rows),
        "features": next((booster.num_feature() for booster in boosters.values()), 0),
        "runs": sum(len(survey.key) for survey in surveys),
        "sample_runs": sum(len(dataset.colocations) for dataset in datasets),
        "sample": "whole runs, drawn evenly over sets of workloads; effects, judgement and calibration rest on them",
        "workers": workers,
    }
    return StreamedDatasets(tuple(datasets), boosters, card)


def train_rows(rows: GroupedExamples, scheduler: str, *, seed: int = 0) -> lightgbm.Booster:
    """A booster of rows that are in memory, trained on a Dask cluster; ClusterError when the cluster fails."""
    from models.scale.cluster import connected

    options, rounds = booster_options(len(rows.residual), seed=seed, monotone=rows.examples.monotone)
    file = FeatureFile(rows.examples.monotone)
    try:
        file.append(rows.examples.x)
        file.seal()
        residual, weight = (one.astype(np.float32) for one in (rows.residual, rows.weight))
        with connected(scheduler) as cluster:
            return cluster.train(MeasuredRows(file, np.arange(len(residual)), residual, weight), options, rounds)
    finally:
        file.close()


def sample(surveys: Sequence[FirstPass], seed: int = 0, most: int = SAMPLE_ROWS) -> list[Dataset]:
    """The datasets with some of their runs as co-locations, about `most` measured rows of all together."""
    if not surveys:
        return []
    found = []
    for one, keys in zip(surveys, choose(surveys, most, seed), strict=True):
        rows: list[TableRow] = []
        for piece in read_run_batches(one.table, ROWS_AT_ONCE) if one.table else ():
            rows += piece.rows(picked(piece, keys))
        found.append(replace(one.dataset, colocations=colocations_from(rows, one.dataset.platforms)))
    return found
