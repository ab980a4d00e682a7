"""Groups by the model's own answers about their pairs: which pairs are asked, and how they are put together."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from models.data.dataset import Dataset
from models.data.profile import WorkloadProfile
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, BandArrays, InterferencePrediction
from profiler.observed import Colocation, Host, Instance, Outcome
from research.benchmarks.composition import GroupAnswers, answers, composed, growth


class BySize:
    """Says of every instance 1 over how many are there."""

    version, origin, metrics = "by size", "measured", ()

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        said = PriorPredictor().predict(scenes, targets)
        alike = np.where(scenes.present, 1.0 / scenes.present.sum(axis=1, keepdims=True), np.nan)
        return InterferencePrediction(
            **{name: getattr(said, name) for name in said.__dataclass_fields__ if name != "throughput"},
            throughput=BandArrays(alike, alike, alike),
        )


def dataset() -> Dataset:
    runs = [
        Colocation(
            "+".join(names),
            "lab",
            "1",
            tuple(
                Outcome(Instance(f"{at}", workload=name), "throughput", 1.0, 0.25, "1/s")
                for at, name in enumerate(names)
            ),
        )
        for names in ("ab", "abc", "abcd")
    ]
    profiles = tuple(WorkloadProfile(name, {"cpu": 100.0}) for name in "abcd")
    return Dataset(
        "made-up", "simulated", Path(), {}, {"lab": Host("lab", "lxc", 2, 1024.0)}, profiles, tuple(runs), ""
    )


def test_groups_above_a_size_are_composed_of_each_victim_s_pairs() -> None:
    found = answers(dataset(), BySize(), 3)
    assert found is not None
    assert found.size.tolist() == [3.0] * 3 + [4.0] * 4
    assert len(set(found.group.tolist())) == 2
    assert found.measured.tolist() == [0.25] * 7
    assert found.asked.tolist() == pytest.approx([1 / 3] * 3 + [1 / 4] * 4)
    assert found.composed.tolist() == pytest.approx([1 / 3] * 3 + [1 / 4] * 4)  # 0.5 beside each
    assert found.of(4).size.tolist() == [4.0] * 4
    assert answers(dataset(), BySize(), 5) is None


def test_slowdowns_add_up_and_growth_is_what_known_groups_show() -> None:
    assert composed(np.array([0.5, 0.5])) == pytest.approx(1 / 3)
    assert composed(np.array([0.8, 1.2])) == pytest.approx(0.8)
    assert growth([]) == 1.0
    reported = np.array([0.5, 0.25, 0.8])
    zeros = np.zeros(3)
    known = GroupAnswers(reported**1.5, zeros, zeros, reported, zeros, zeros)
    assert growth([known]) == pytest.approx(1.5)
