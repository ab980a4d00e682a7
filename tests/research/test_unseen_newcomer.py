"""Cross-fitting: nobody answers about workloads of which it saw two together."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest

from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.prediction import TARGETS, BandArrays, InterferencePrediction
from profiler.observed import Host, Instance
from research.benchmarks.unseen_pair_predictor import CrossFitted, folds_of, pairs_of

NAMES = "abcdefgh"
PAIRS = list(combinations_with_replacement(NAMES, 2))
LARGE = [*list(combinations(NAMES, 3))[::5], *list(combinations(NAMES, 4))[::9]]


def test_every_set_has_one_fold_and_its_training_lacks_every_two_of_it() -> None:
    groups = folds_of({*PAIRS, *LARGE}, 5)
    assert sorted(one for _, sets in groups for one in sets) == sorted({*PAIRS, *LARGE})
    for lacking, sets in groups:
        assert all(pairs_of(one) <= lacking for one in sets)


def test_folds_leave_most_of_the_pairs_to_training() -> None:
    assert max(len(lacking) for lacking, _ in folds_of(set(PAIRS), 6)) == len(PAIRS) / 6
    assert max(len(lacking) for lacking, _ in folds_of({*PAIRS, *LARGE}, 6)) < len(PAIRS) / 2


def test_two_of_one_workload_are_a_pair_too() -> None:
    assert pairs_of(("a", "a", "b")) == {("a", "a"), ("a", "b")}


class Constant:
    """Says one number of everybody."""

    def __init__(self, value: float) -> None:
        self.value = value

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        band = BandArrays(*(np.full(scenes.present.shape, self.value) for _ in range(3)))
        return InterferencePrediction(band, band, band, np.zeros(scenes.present.shape, dtype=bool))


def scenes(*hosts: str) -> SceneBatch:
    host = Host("h", "lxc", pcpus=2, memory_mb=1.0)
    there = [(host, [Instance(f"{at}", workload=name) for at, name in enumerate(names)]) for names in hosts]
    return build_batch(there, ProfileTable.build([WorkloadProfile(name, {"cpu": 1.0}) for name in NAMES]))


def test_each_scene_is_answered_by_its_own_fold() -> None:
    fold = {("a", "b"): 1, ("a", "c"): 0, ("a", "b", "c"): 2}
    crossed = CrossFitted([Constant(0.1), Constant(0.2), Constant(0.3)], fold, "simulated")  # type: ignore[list-item]
    said = crossed.predict(scenes("ba", "ac", "cab", "b")).throughput.expected
    assert said[:, 0].tolist() == [0.2, 0.1, 0.3, 0.1]


def test_a_set_that_no_fold_left_out_is_refused() -> None:
    with pytest.raises(ValueError, match=r"about a\+d"):
        CrossFitted([], {("a", "b"): 0}, "simulated").predict(scenes("da"))
