"""Speed of prediction: a model's answers beside the bare predict of its trees on the same rows; prints tables.

    python -m research.benchmarks.prediction [--json] [--no-training] [DATASET ...]

The baseline in the same run is LightGBM's own predict of every booster of the model on the same rows. Both run in turn,
so that what else the machine does hits both; the ratio is the median of the rounds' own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Ints
from models.data.dataset import Dataset, load_dataset
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.features.examples import Examples, build_examples
from models.features.feature_matrix import build_matrix
from models.learning.fitted_target import FittedTarget
from models.learning.intervals import HINTS
from models.physics.prior import solve
from models.training import fit_predictor, train
from profiler.observed import Host, Instance
from research.benchmarks.measuring import circumstances

DATASETS = ("datasets/lab-neighbours", "datasets/lab-colocations")
ROWS, SCENES, TOGETHER, REPEATS = 10_000, 2_500, 4, 15
TARGET_RATIO, TARGET_TRAINING_S = 1.2, 120.0  # of the issue "Interference prediction that generalises"


@dataclass(frozen=True)
class AskedRows:
    """R rows that a target is asked about, as `FittedTarget.estimate` takes them."""

    x: Floats
    base: Floats
    effects: Floats
    known: Bools
    size: Ints
    platform: NDArray[np.str_]


def main() -> None:
    """Print tables, or JSON; exit code 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", type=Path, metavar="DATASET")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-training", action="store_true", help="leave out the training of all shipped datasets")
    options = parser.parse_args()
    document = {
        **circumstances(),
        "rows": ROWS,
        "scenes": SCENES,
        "repeats": REPEATS,
        "predictions": [_speed(load_dataset(path)) for path in options.datasets or map(Path, DATASETS)],
        "trainings": [] if options.no_training else [_training(path) for path in _shipped()],
    }
    if options.json:
        print(json.dumps(document, indent=1))
    else:
        _show(document)
    sys.exit(not _met(document))


def _speed(dataset: Dataset) -> dict[str, Any]:
    predictor = fit_predictor([dataset])
    target = predictor.throughput
    rows = some_rows(target, build_examples([dataset], predictor.metrics))
    scenes = some_scenes(dataset)
    bare, whole = trees(target, rows.x), answers(target, rows)
    taken = interleaved({"LightGBM alone": bare, "FittedTarget.estimate": whole})
    ratios = [ours / theirs for theirs, ours in zip(*taken.values(), strict=True)]
    served = medians(
        {
            "LightGBM alone": trees(target, build_matrix(scenes, predictor.metrics).x),
            "prior": lambda: solve(scenes),
            "features with prior": lambda: build_matrix(scenes, predictor.metrics),
            "LearnedPredictor.predict": lambda: predictor.predict(scenes),
        }
    )
    return {
        "dataset": dataset.name,
        "columns": rows.x.shape[1],
        "boosters": len(boosters_of(target)),
        "trees": sum(booster.num_trees() for booster in boosters_of(target)),
        "rows_ms": {name: statistics.median(times) for name, times in taken.items()},
        "ratio": statistics.median(ratios),
        "scenes_ms": served,
        "targets": sorted(predictor.targets),
    }


def boosters_of(target: FittedTarget) -> list[Any]:
    """Every booster that an answer of this target asks: the members' and that of the intervals."""
    members, difficulty = target.model.base_learners, target.calibration.difficulty
    trees_of = [] if members is None else [*members.boosters, members.forest]
    return trees_of if difficulty is None else [*trees_of, difficulty]


def trees(target: FittedTarget, x: Floats) -> Callable[[], object]:
    """LightGBM's predict of all boosters on the same rows, with as many columns as each was trained on."""
    hints = np.zeros((len(x), HINTS))
    boosters = boosters_of(target)
    wide = np.concatenate([hints, x], axis=1)
    given = [x if booster.num_feature() == x.shape[1] else wide[:, : booster.num_feature()] for booster in boosters]
    given = [np.ascontiguousarray(one) for one in given]
    return lambda: [booster.predict(one, num_threads=0) for booster, one in zip(boosters, given, strict=True)]


def answers(target: FittedTarget, asked: AskedRows) -> Callable[[], object]:
    """The same rows as expected values with intervals and marks."""
    return lambda: target.estimate(asked.x, asked.base, asked.effects, asked.known, asked.size, asked.platform)


def some_rows(target: FittedTarget, examples: Examples) -> AskedRows:
    """ROWS rows drawn from the examples, so that the trees are walked as real rows walk them."""
    some = np.random.default_rng(0).integers(0, len(examples), ROWS)
    rows = examples.take(some)
    return AskedRows(
        x=np.ascontiguousarray(rows.x),
        base=rows.base,
        effects=target.model.effects.predict(rows.victim, rows.neighbours),
        known=target.model.all_known(rows.victim, rows.neighbours),
        size=rows.size,
        platform=np.array([label.partition("/")[2] for label in rows.platform], dtype=np.str_),
    )


def some_scenes(dataset: Dataset) -> SceneBatch:
    """SCENES hosts of the dataset's first platform with TOGETHER of its workloads each."""
    host = next(iter(dataset.platforms.values()))
    workloads = sorted(
        {outcome.instance.workload or "" for colocation in dataset.colocations for outcome in colocation.outcomes}
    )
    drawn = np.random.default_rng(0).choice(workloads, (SCENES, TOGETHER))
    scenes: list[tuple[Host, list[Instance]]] = [
        (host, [Instance(f"i{slot}", vcpus=1, workload=str(one)) for slot, one in enumerate(row)]) for row in drawn
    ]
    return build_batch(scenes, ProfileTable.build(dataset.profiles, dataset.platform_numbers))


def medians(work: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median milliseconds of each, run in turn."""
    return {name: statistics.median(times) for name, times in interleaved(work).items()}


def interleaved(work: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Milliseconds of each round, run in turn after one round that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(REPEATS + 1):
        for name, do in work.items():
            begin = time.perf_counter()
            do()
            if turn:
                taken[name].append(1000 * (time.perf_counter() - begin))
    return taken


def _shipped() -> list[list[Path]]:
    """The dataset with most rows by itself, and all that are shipped together."""
    return [[Path(DATASETS[1])], sorted(path.parent for path in Path("datasets").glob("*/dataset.yaml"))]


def _training(datasets: list[Path]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        begin, busy = time.perf_counter(), time.process_time()
        version = train(datasets, Path(folder)).name
        whole, busy = time.perf_counter() - begin, time.process_time() - busy
    return {"datasets": [path.name for path in datasets], "version": version, "s": whole, "cpu_s": busy}


def _met(document: dict[str, Any]) -> bool:
    ratios = [one["ratio"] <= TARGET_RATIO for one in document["predictions"]]
    return all(ratios) and all(one["s"] <= TARGET_TRAINING_S for one in document["trainings"])


def _show(document: dict[str, Any]) -> None:
    print(f"Speed of prediction, medians of {REPEATS} interleaved repeats; {document['machine']}, {document['date']}\n")
    for row in document["predictions"]:
        print(f"{row['dataset']}: {row['columns']} columns, {row['boosters']} boosters with {row['trees']} trees")
        for name, ms in row["rows_ms"].items():
            print(f"  {ROWS:6} rows        {name:26} {ms:8.1f} ms")
        print(f"  {'':18} {'ratio (target 1.2)':26} {row['ratio']:8.2f}")
        for name, ms in row["scenes_ms"].items():
            print(f"  {SCENES:6} scenes x {TOGETHER}  {name:26} {ms:8.1f} ms")
    for row in document["trainings"]:
        print(
            f"training {len(row['datasets'])} dataset(s): {row['s']:.0f} s, {row['cpu_s']:.0f} s of CPU (target 120 s)"
        )


if __name__ == "__main__":
    main()
