"""Asks what each of the eight metrics is worth as a feature: without it, shuffled, and how well it repeats.

`python -m research.metric_ablation datasets/lab-colocations` prints three tables in Markdown.

The learner is the mean of the product's boosters and forest, at half weight, without stacking: some hundred fits take
minutes instead of days. `--product` fits the whole product instead, for the few variants that a decision rests on.
The prior keeps all metrics, but in the variants that say so.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from models.arrays import Floats, Ints
from models.data.dataset import Dataset, load_dataset
from models.data.tables import find_table, read_rows
from models.evaluation.bootstrap import interval, resampled_means
from models.evaluation.methods import predict_rows
from models.evaluation.protocols import ProtocolFold, folds_of
from models.evaluation.row_groups import codes
from models.features.examples import Examples, build_examples, metrics_of
from models.features.feature_matrix import PLATFORM
from models.features.repeats import group_repeats
from models.learning.boosting import fit_boosters, fit_forest, predict
from models.learning.residual_model import LEAST_ROWS
from profiler.metrics import EIGHT, SCOPES, join_key

NAMES = tuple(metric.name for metric in EIGHT)
OUTCOMES = ("throughput", "latency_mean_ms", "latency_p95_ms", "jitter_ms", "timeouts_percent")
PROTOCOLS = ("unseen_pair", "unseen_workload")
SHARE = 0.5  # of the correction that is applied: what stacking chose on average
SHUFFLES = 5
LOW, HIGH = 1e-3, 1.1

Learner = Callable[[Examples, Examples], Callable[[Floats], Floats]]


@dataclass(frozen=True, slots=True)
class AblationRun:
    """Absolute errors of T/B of J predictions; `row` (J,) indexes the examples, `shuffled` by metric is (J,), too."""

    row: Ints
    error: Floats
    shuffled: dict[str, Floats]


def keys_in(dataset: Dataset) -> tuple[str, ...]:
    """All keys of the profiles, those that are no features of the product, too, and the platforms' numbers."""
    own = sorted({key for profile in dataset.profiles for key in profile.metrics})
    return (*own, *(key for key in metrics_of([dataset]) if key.startswith(PLATFORM)))


def keys_of(metric: str) -> frozenset[str]:
    """All keys of one metric, whatever its scope."""
    return frozenset(join_key(scope, metric) for scope in SCOPES)


def columns_of(names: Sequence[str], keys: Collection[str]) -> Ints:
    """The columns that describe these metrics: the instance's own, and the sums over neighbours."""
    return np.array(
        [at for at, name in enumerate(names) if " " in name and name.split(" ", 1)[1] in keys and _measured(name)],
        dtype=np.int64,
    )


def _measured(name: str) -> bool:
    return name.split(" ", 1)[0] in {"own", "near", "host", "socket"}


def without(examples: Examples, keys: Collection[str]) -> Examples:
    """The same rows without the columns of these metrics."""
    gone = set(columns_of(examples.names, keys).tolist())
    kept = [at for at in range(len(examples.names)) if at not in gone]
    return replace(
        examples,
        x=examples.x[:, kept],
        names=tuple(examples.names[at] for at in kept),
        monotone=examples.monotone[kept],
    )


def variants(metrics: Collection[str]) -> dict[str, frozenset[str]]:
    """What each variant leaves out; the first leaves out nothing."""
    eight = frozenset(key for name in NAMES for key in keys_of(name))
    others = frozenset(metrics) - eight
    cpu = keys_of("cpu")
    found: dict[str, frozenset[str]] = {"all": frozenset()}
    found |= {f"without {name}": keys_of(name) for name in NAMES}
    found |= {
        "of the eight only cpu": eight - cpu,
        "none of the eight": eight,
        "the eight alone": others,
        "cpu alone": frozenset(metrics) - cpu,
        "without solo outcomes": frozenset(OUTCOMES),
        "no metric": frozenset(metrics),
    }
    return found


def quick(train: Examples, test: Examples) -> Callable[[Floats], Floats]:
    """Fit boosters and forest on `train`; returns what predicts T/B of `test` from features like its own."""
    rows = group_repeats(train)
    x, monotone = rows.examples.x, train.monotone
    boosters = fit_boosters(x, rows.residual, rows.weight, monotone, seed=0, count=2)
    forest = fit_forest(x, rows.residual, rows.weight, monotone, seed=0)

    def told(features: Floats) -> Floats:
        learned = (predict(boosters, features) + predict([forest], features)) / 2
        return np.clip(test.base * np.exp(SHARE * learned), LOW, HIGH)

    return told


def whole(train: Examples, test: Examples) -> Callable[[Floats], Floats]:
    """The product's own fit."""
    expected = predict_rows(train, test).expected
    return lambda _features: expected


def run(examples: Examples, folds: Sequence[ProtocolFold], learner: Learner, shuffle: bool) -> AblationRun:
    """Errors of test rows; with `shuffle` also those after each metric's columns were shuffled among test rows."""
    random = np.random.default_rng(0)
    rows, errors = [], []
    shuffled: dict[str, list[Floats]] = defaultdict(list)
    for fold in folds:
        train, test = examples.take(fold.train), examples.take(fold.test)
        told = learner(train, test)
        rows.append(fold.test)
        errors.append(np.abs(test.ratio - told(test.x)))
        for name in NAMES if shuffle else ():
            columns = columns_of(examples.names, keys_of(name))
            worse = [
                np.abs(test.ratio - told(_mixed(test.x, columns, random)))
                for _ in range(SHUFFLES if len(columns) else 0)
            ]
            shuffled[name].append(np.mean(worse, axis=0) if worse else errors[-1])
    return AblationRun(
        np.concatenate(rows), np.concatenate(errors), {name: np.concatenate(parts) for name, parts in shuffled.items()}
    )


def _mixed(x: Floats, columns: Ints, random: np.random.Generator) -> Floats:
    made = x.copy()
    made[:, columns] = x[random.permutation(len(x))][:, columns]
    return made


def repeatability(dataset: Dataset) -> dict[str, tuple[float, float, int]]:
    """By key: spread between workloads, spread of repeats within one (both SDs of log1p), and number of workloads."""
    table = find_table(dataset.path, "profiles")
    values: dict[str, dict[tuple[str, str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read_rows(table, ("metric", "value")) if table else ():
        key = join_key(row.text("scope") or "instance", row.text("metric"))  # type: ignore[arg-type]
        owner = row.text("platform"), row.text("workload"), row.text("load")
        values[key][owner].append(float(np.log1p(row.number("value", required=True) or 0.0)))
    found = {}
    for key, by_owner in values.items():
        several = [one for one in by_owner.values() if len(one) > 1]
        within = float(np.sqrt(np.mean([np.var(one, ddof=1) for one in several]))) if several else np.nan
        found[key] = float(np.std([np.mean(one) for one in by_owner.values()])), within, len(by_owner)
    return found


def _difference(examples: Examples, row: Ints, columns: Sequence[Floats]) -> list[str]:
    pair = codes(examples.pair)[row]
    values = np.stack(columns, axis=1)
    means = resampled_means(pair, values)
    told = []
    for at in range(values.shape[1]):
        bounds = interval(None if means is None else means[:, [at]])
        span = f" ({bounds[0]:+.4f} to {bounds[1]:+.4f})" if bounds else ""
        told.append(f"{values[:, at].mean():+.4f}{span}")
    return told


def _ablation(dataset: Dataset, examples: Examples, options: argparse.Namespace) -> None:
    learner = whole if options.product else quick
    metrics = keys_in(dataset)
    made = {f"{name}, as features": without(examples, keys) for name, keys in variants(metrics).items()}
    seven = variants(metrics)["of the eight only cpu"]
    made["the seven, out of the profiles"] = build_examples([_poorer(dataset, seven)], metrics)
    chosen = {name: rows for name, rows in made.items() if not options.only or options.only in name}
    for protocol in options.protocol or PROTOCOLS:
        folds = [fold for fold in folds_of(examples, protocol) if len(fold.train) >= LEAST_ROWS and len(fold.test)]
        if not folds:
            say(f"\n{protocol}: nothing can be left out")
            continue
        base = run(examples, folds, learner, shuffle=not options.product)
        prior = np.abs(examples.ratio - np.clip(examples.base, LOW, HIGH))[base.row]
        say(f"\n{protocol}: {len(base.row)} rows, MAE with all {base.error.mean():.4f}, prior {prior.mean():.4f}\n")
        say("| left out | MAE | difference (95 %) |\n|---|---|---|")
        for name, rows in chosen.items():
            if rows.x.shape == examples.x.shape and np.array_equal(rows.x, examples.x, equal_nan=True):
                continue
            error = run(rows, folds, learner, shuffle=False).error
            say(f"| {name} | {error.mean():.4f} | {_difference(examples, base.row, [error - base.error])[0]} |")
        if base.shuffled:
            say("\n| shuffled among test rows | error grows by (95 %) |\n|---|---|")
            grown = _difference(examples, base.row, [one - base.error for one in base.shuffled.values()])
            for name, text in zip(base.shuffled, grown, strict=True):
                say(f"| {name} | {text} |")


def _poorer(dataset: Dataset, gone: Collection[str]) -> Dataset:
    """The dataset with profiles that lack these metrics: the prior does not have them either."""
    kept = [
        replace(one, metrics={key: value for key, value in one.metrics.items() if key not in gone})
        for one in dataset.profiles
    ]
    return replace(dataset, profiles=tuple(kept))


def _noise(dataset: Dataset) -> None:
    eight = {key for name in NAMES for key in keys_of(name)}
    say("\n| key | workloads | spread between workloads | of repeats within one | ratio |\n|---|---|---|---|---|")
    for key, (between, within, count) in sorted(repeatability(dataset).items()):
        if key in eight:
            say(f"| {key} | {count} | {between:.2f} | {within:.3f} | {between / within if within else np.inf:.1f} |")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m research.metric_ablation", description=__doc__)
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET", help="dataset directories, each by itself")
    parser.add_argument("--product", action="store_true", help="fit the whole product (minutes for each variant)")
    parser.add_argument("--only", metavar="TEXT", help="only variants with this in their name")
    parser.add_argument("--protocol", action="append", choices=PROTOCOLS, help="only this one (repeatable)")
    options = parser.parse_args()
    for path in options.datasets:
        dataset = load_dataset(path)
        say(f"\n## {dataset.name}")
        _ablation(dataset, build_examples([dataset], keys_in(dataset)), options)
        _noise(dataset)


def say(text: str) -> None:
    """A line at once: the next one may take minutes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
