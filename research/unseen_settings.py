"""What caps, weights, tc and the driver's CPUs do to a pair, and how well that is told by who learned without them.

python -m research.unseen_settings PAIRS SETTINGS

PAIRS and SETTINGS are datasets of one machine, as examples/campaigns/pairs.yaml and pair-settings.yaml measure them.
All methods learn from PAIRS and judge SETTINGS.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from models.arrays import Floats
from models.data.dataset import DatasetError, load_dataset
from models.evaluation.methods import OURS, chosen
from models.features.examples import Examples, build_examples, metrics_of

METHODS = (OURS, "prior", "lightgbm_plain", "random_forest", "additive")
DRAWS = 2000


def split(pairs: Path, settings: Path) -> tuple[Examples, Examples]:
    """Rows of both datasets, described alike; DatasetError where one is broken."""
    data = [load_dataset(path) for path in (pairs, settings)]
    rows = build_examples(data, metrics_of(data))
    judged = np.array([run.startswith(f"{data[1].name}/") for run in rows.run])
    return rows.take(np.flatnonzero(~judged)), rows.take(np.flatnonzero(judged))


def kind_of(run: str) -> str:
    """What is set, by the name that the campaign gives the run: `same:web-1k:spin.cap25` is `cap25`."""
    form, _, members = run.split("/")[1].partition(":")
    variants = [member.partition(".")[2] for member in members.split(":") if "." in member]
    return " ".join([*variants, *([form] if form != "same" else [])]) or form


def table(rows: Examples, predictions: Mapping[str, Floats]) -> Iterator[str]:
    """One line for each setting: how many ratios, their mean, and each method's MAE; then all of them."""
    yield f"| set | ratios | T/B, mean | {' | '.join(predictions)} |"
    yield f"|---|---|---|{'---|' * len(predictions)}"
    kinds = np.array([kind_of(run) for run in rows.run])
    for kind in (*sorted(set(kinds)), ""):
        here = kinds == kind if kind else np.ones(len(rows), dtype=bool)
        errors = [np.abs(values - rows.ratio)[here].mean() for values in predictions.values()]
        cells = " | ".join(f"{error:.3f}" for error in errors)
        yield f"| {kind or 'all'} | {here.sum()} | {rows.ratio[here].mean():.3f} | {cells} |"


def difference(rows: Examples, one: Floats, other: Floats) -> tuple[float, float, float]:
    """By how much the MAE of `one` is above that of `other`, with the 95 % interval by bootstrap over pairs."""
    above = np.abs(one - rows.ratio) - np.abs(other - rows.ratio)
    names, pair = np.unique(np.array(rows.pair), return_inverse=True)
    drawn = np.random.default_rng(0).integers(0, len(names), (DRAWS, len(names)))
    weights = np.array([np.bincount(draw, minlength=len(names)) for draw in drawn])[:, pair]
    low, high = np.percentile((weights * above).sum(axis=1) / weights.sum(axis=1), [2.5, 97.5])
    return float(above.mean()), float(low), float(high)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m research.unseen_settings", description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("settings", type=Path)
    given = parser.parse_args(arguments)
    if given.pairs.resolve() == given.settings.resolve():
        parser.error("PAIRS and SETTINGS are one dataset: give one without settings, and one with them")
    try:
        train, rows = split(given.pairs, given.settings)
    except DatasetError as error:
        parser.error(str(error))
    predictions = {name: method(train, rows).expected for name, method in chosen(METHODS).items()}
    lines = list(table(rows, {name: predictions[name] for name in METHODS}))
    for name in METHODS[1:]:
        mean, low, high = difference(rows, predictions[OURS], predictions[name])
        lines.append(f"{OURS} minus {name}: {mean:+.4f} ({low:+.4f} to {high:+.4f})")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
