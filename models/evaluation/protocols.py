"""Training and test rows under each protocol; all protocols but `random_row` keep repeats of a pair together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.arrays import Ints
from models.data.dataset import DatasetError
from models.evaluation.row_groups import codes
from models.features.examples import Examples

PROTOCOLS = (
    "random_row", "unseen_pair", "unseen_workload", "unseen_platform", "unseen_setting", "pairs_to_n", "n_up_to_k",
)  # fmt: skip
MORE = frozenset({"pairs_to_n", "n_up_to_k"})  # judged on more instances than trained on
DEFAULT_PROTOCOLS = ("unseen_pair", "unseen_workload")
RANDOM_FOLDS = 5
PAIR_FOLDS = 10
MOST_FOLDS = 24  # one workload, platform or setting per fold up to here, groups of them beyond
MANY_ROWS, FEW_FOLDS = 5000, 5  # beyond so many rows a fold is large enough, and every fit takes its time


@dataclass(frozen=True, slots=True)
class ProtocolFold:
    """Training rows, test rows, and the workloads that `unseen_workload` left out of training."""

    train: Ints
    test: Ints
    left_out: frozenset[str] = frozenset()


def folds_of(examples: Examples, protocol: str) -> list[ProtocolFold]:
    """The folds of a protocol; none where nothing can be left out. DatasetError for an unknown protocol."""
    check_protocol(protocol)
    rows = len(examples)
    few = rows > MANY_ROWS
    if protocol == "random_row":
        return _by_number(np.random.default_rng(0).permutation(rows) % RANDOM_FOLDS)
    if protocol == "unseen_pair":
        return _left_out(examples.pair, FEW_FOLDS if few else PAIR_FOLDS)
    if protocol == "unseen_workload":
        return _workloads(examples, FEW_FOLDS if few else MOST_FOLDS)
    if protocol == "unseen_platform":
        return _left_out(examples.platform, FEW_FOLDS if few else MOST_FOLDS)
    if protocol == "unseen_setting":
        return _left_out(settings_of(examples), FEW_FOLDS if few else MOST_FOLDS)
    sizes = np.unique(examples.size[examples.size > 2]).tolist()
    most = [2] if protocol == "pairs_to_n" else sizes[:-1]
    parts = [(examples.size <= one, examples.size > one) for one in most]
    return [ProtocolFold(np.flatnonzero(train), np.flatnonzero(test)) for train, test in parts]


def check_protocol(protocol: str) -> None:
    """Raise DatasetError for an unknown protocol."""
    if protocol not in PROTOCOLS:
        raise DatasetError(f"protocol {protocol!r} is none of {', '.join(PROTOCOLS)}")


def why_skipped(protocol: str) -> str:
    """Why a dataset has no fold of a protocol."""
    return {
        "unseen_platform": "the dataset has one platform only",
        "unseen_setting": "the dataset has one setting only",
        "pairs_to_n": "the dataset has no run of three or more instances",
        "n_up_to_k": "the dataset has no runs of two different sizes above two instances",
    }.get(protocol, "too few rows to train on")


def settings_of(examples: Examples) -> list[str]:
    """The set of settings in each run, without counts: a run of three with the same pinning is no new setting."""
    return [" ".join(sorted(set(setting.split(" ")))) for setting in examples.setting]


def _left_out(labels: Sequence[str], most: int) -> list[ProtocolFold]:
    """One fold per label, or per group of labels where there are more than `most`; the fold leaves it out."""
    names = sorted(set(labels))
    number = dict(zip(names, _spread(len(names), most), strict=True))
    return _by_number(np.array([number[label] for label in labels], dtype=np.int64)) if len(names) > 1 else []


def _workloads(examples: Examples, most: int) -> list[ProtocolFold]:
    """One fold per workload (or group of workloads); it leaves out all its runs. A row may be in several tests."""
    pairs = list(dict.fromkeys(examples.pair))
    names = sorted({name for pair in pairs for name in pair.split("+")})
    group_of = dict(zip(names, _spread(len(names), most), strict=True))
    number = codes(examples.pair)
    folds = []
    for group in range(min(most, len(names))):
        touched = np.array([any(group_of[name] == group for name in pair.split("+")) for pair in pairs], dtype=bool)
        inside = touched[number]
        if inside.any() and not inside.all():
            left_out = frozenset(name for name in names if group_of[name] == group)
            folds.append(ProtocolFold(np.flatnonzero(~inside), np.flatnonzero(inside), left_out))
    return folds


def _spread(count: int, most: int) -> Ints:
    """The fold of each of `count` things, in order where each has its own, else by a seeded shuffle."""
    return np.arange(count) if count <= most else np.random.default_rng(1).permutation(count) % most


def _by_number(number: Ints) -> list[ProtocolFold]:
    folds = [ProtocolFold(np.flatnonzero(number != one), np.flatnonzero(number == one)) for one in np.unique(number)]
    return [fold for fold in folds if len(fold.train)]
