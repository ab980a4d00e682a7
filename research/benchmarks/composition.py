"""Groups larger than those of training: is the model better asked about the group, or about its pairs?

    python -m research.benchmarks.composition [--datasets DIR ...] [--judges DIR ...]

A model learns from the runs of at most so many instances, and predicts those of more. It is asked about the whole
group, or about each pair in it: slowdowns of a victim beside one neighbour each add up (`composed`), and with `growth`
the logarithm of that is multiplied by what groups of the training showed, where it had any of more than two. MAE of
T/B with 95 % bootstrap intervals of the difference over groups. Hidden datasets are refused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from models.arrays import Floats
from models.data.dataset import Dataset, load_dataset
from models.data.dataset_rules import check_learnable
from models.data.scene import ProfileTable, build_batch
from models.features.examples import measured
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from models.training import fit_predictor
from profiler.observed import Colocation, Host, Instance
from research import markdown
from research.benchmarks.unseen_newcomer import throughput_only

LEARNED_FROM = ("lab-pairs", "lab-pairs-xeon-2cpu", "lab-pairs-shared-xeon-2cpu")  # as `make run`
JUDGES = ("lab-pairs", "lab-pairs-xeon-2cpu", "lab-colocations")
LARGEST = (2, 3)  # sizes that are learned from
RESAMPLES = 2_000
LEAST = 20  # instances in groups of a size


@dataclass(frozen=True, slots=True)
class GroupAnswers:
    """What was measured of each instance of some groups, and predicted, (R,); `group` numbers the set, `size` (R,)."""

    measured: Floats
    analytic: Floats
    asked: Floats
    composed: Floats
    size: Floats
    group: Floats

    def of(self, size: int) -> GroupAnswers:
        """Those of groups of a size."""
        here = self.size == size
        return GroupAnswers(*(getattr(self, name)[here] for name in self.__slots__))


def composed(pairs: Floats) -> float:
    """T/B beside several neighbours from T/B beside each of them, (K,): slowdowns add up."""
    return float(1 / (1 + np.maximum(1 / np.maximum(pairs, 1e-3) - 1, 0.0).sum()))


def answers(dataset: Dataset, model: Predictor, least: int) -> GroupAnswers | None:
    """Of runs of at least so many instances; None where there are none."""
    table = ProfileTable.build(dataset.profiles, dataset.platform_numbers)
    runs = [
        (one, ratios)
        for one in dataset.colocations
        if size_of(one) >= least and (ratios := measured(one, "throughput"))
    ]
    if not runs:
        return None
    wholes: list[tuple[Host, Sequence[Instance]]] = []
    pairs: list[tuple[Host, Sequence[Instance]]] = []
    rows: list[tuple[int, int, float, int, int, str]] = []  # run, slot, measured, first pair, pairs, group
    for at, (one, ratios) in enumerate(runs):
        host = replace(dataset.platforms[one.platform], driver_cpus=one.driver_cpus)
        there = list({outcome.instance.id: outcome.instance for outcome in one.outcomes}.values())
        wholes.append((host, [*there, *one.generators]))
        group = repr((one.platform, sorted((each.workload or "", str(each.settings)) for each in there)))
        for slot, victim in enumerate(there):
            if victim.id in ratios:
                rows.append((at, slot, ratios[victim.id], len(pairs), len(there) - 1, group))
                pairs += [(host, [victim, other, *one.generators]) for other in there if other is not victim]
    of_wholes, of_pairs = build_batch(wholes, table), build_batch(pairs, table)
    beside_one = model.predict(of_pairs, ("throughput",)).throughput.expected[:, 0]
    asked, analytic = (
        each.predict(of_wholes, ("throughput",)).throughput.expected for each in (model, PriorPredictor())
    )
    numbers = {group: number for number, group in enumerate(dict.fromkeys(row[5] for row in rows))}
    return GroupAnswers(
        np.array([row[2] for row in rows]),
        np.array([analytic[at, slot] for at, slot, *_ in rows]),
        np.array([asked[at, slot] for at, slot, *_ in rows]),
        np.array([composed(beside_one[first : first + count]) for _, _, _, first, count, _ in rows]),
        np.array([row[4] + 1 for row in rows]),
        np.array([numbers[row[5]] for row in rows]),
    )


def size_of(one: Colocation) -> int:
    """How many instances ran together."""
    return len({outcome.instance.id for outcome in one.outcomes})


def growth(known: Sequence[GroupAnswers]) -> float:
    """By what the logarithm of a composed ratio is to be multiplied, by least squares over groups of the training; 1
    where there are none."""
    if not known:
        return 1.0
    predicted, reached = (
        np.log(np.clip(np.concatenate([getattr(one, name) for one in known]), 1e-3, 1.0))
        for name in ("composed", "measured")
    )
    return float((predicted * reached).sum() / max((predicted**2).sum(), 1e-12))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", type=Path, default=[Path("datasets") / name for name in LEARNED_FROM])
    parser.add_argument("--judges", nargs="+", type=Path, default=[Path("datasets") / name for name in JUDGES])
    options = parser.parse_args(arguments)
    learned, judges = (
        [throughput_only(load_dataset(path)) for path in paths] for paths in (options.datasets, options.judges)
    )
    check_learnable([*learned, *judges])
    rows = []
    for most in LARGEST:
        kept = [
            replace(one, colocations=tuple(run for run in one.colocations if size_of(run) <= most)) for one in learned
        ]
        model = fit_predictor(kept)
        known = [found for one in kept if most > 2 and (found := answers(one, model, 3))]
        factor = growth(known)
        for judge in judges:
            found = answers(judge, model, most + 1)
            sizes = sorted(set(found.size.astype(int).tolist())) if found else ()
            rows += [_row(judge.name, most, size, found.of(size), factor) for size in sizes if found]
    head = ["campaign", "learned up to", "judged", "rows, groups", "analytic", "asked", "composed", "composed, growth"]
    sys.stdout.write(markdown.table([*head, "composed - asked", "growth - asked"], [row for row in rows if row]))
    return 0


def _row(name: str, most: int, size: int, of: GroupAnswers, factor: float) -> list[str]:
    if len(of.size) < LEAST:
        return []
    grown = np.clip(of.composed, 1e-3, 1.0) ** factor
    errors = [np.abs(predicted - of.measured) for predicted in (of.analytic, of.asked, of.composed, grown)]
    groups = len(set(of.group.tolist()))
    return [
        name, str(most), str(size), f"{len(of.size)}, {groups}", *(f"{each.mean():.3f}" for each in errors),
        *(_difference(each - errors[1], of.group) for each in errors[2:]),
    ]  # fmt: skip


def _difference(values: Floats, groups: Floats) -> str:
    _, which = np.unique(groups, return_inverse=True)
    count = int(which.max()) + 1
    sums, sizes = np.bincount(which, values, count), np.bincount(which, minlength=count)
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    low, high = np.quantile(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), [0.025, 0.975])
    return f"{values.mean():+.3f} ({low:+.3f} to {high:+.3f})"


if __name__ == "__main__":
    sys.exit(main())
