"""What is remembered by name: shrunken by how often it was measured, the same by rows and by scenes."""

from __future__ import annotations

import numpy as np
import pytest

from models.data.scene import ProfileTable, build_batch
from models.features.examples import Neighbour
from models.learning.memory import Memory, fit_memory, shrink_of
from profiler.observed import Host

PLATFORMS = {"d/p": (2.0, 1.0, 2445.4, 0.5, None)}


def remembered(times: int, residual: float = 0.5, spread: float = 0.04) -> Memory:
    """A pair that was measured so often and is off by `residual`, beside nineteen others that are off either way."""
    victims = ("a", *(f"v{at}" for at in range(19)))
    neighbours = [(Neighbour(f"n{at}", 1.0),) for at in range(20)]
    left = np.array([residual, *np.random.default_rng(0).normal(0, 0.3, 19)])
    count = np.array([float(times), *np.full(19, 2.0)])
    folds = [(np.arange(10), np.arange(10, 20)), (np.arange(10, 20), np.arange(10))]
    return fit_memory(victims, neighbours, left, np.full(20, spread), count, folds, np.full(20, 0.6), PLATFORMS, 0.25)[
        0
    ]


def effect(memory: Memory, victim: str = "a", beside: str = "n0") -> float:
    return float(memory.of([victim], [(Neighbour(beside, 1.0),)]).effect[0])


def test_a_pair_that_was_measured_forty_times_is_believed_and_one_measured_once_is_half() -> None:
    once, often = effect(remembered(1)), effect(remembered(40))
    assert 0 < once < often <= 0.5
    assert often > 0.4


def test_a_pair_that_was_not_measured_has_no_effect_of_its_own() -> None:
    assert effect(remembered(40), "stranger", "other") == 0
    reported = remembered(40).of(["a", "a"], [(Neighbour("n0", 1.0),), (Neighbour("n3", 1.0),)])
    assert reported.measured.tolist() == [40, 0]
    assert reported.familiar[0] > 0.5


def test_on_other_machines_it_counts_as_much_as_left_out_ones_showed() -> None:
    memory = remembered(40)
    beside = [(Neighbour("n0", 1.0),)] * 2
    here, elsewhere = memory.of(["a", "a"], beside, np.array([True, False])).effect
    assert elsewhere == pytest.approx(0.25 * here)


@pytest.mark.parametrize(
    ("host", "known"),
    [
        (Host("h", "lxc", 2, 1024.0, platform="p"), True),
        (Host("h", "lxc", 2, 1024.0, cpu_mhz=2450.0, l2_mb=0.5, l3_mb=32.0, platform="p"), True),
        (Host("h", "lxc", 2, 1024.0, cpu_mhz=2250.0, l2_mb=0.5, platform="p"), False),
        (Host("h", "lxc", 2, 1024.0, l2_mb=1.0, platform="p"), False),
        (Host("h", "lxc", 2, 1024.0, cpu_mhz=2445.4, platform="q"), False),
    ],
)
def test_a_host_is_the_one_of_training_by_its_name_unless_what_is_stated_tells_them_apart(
    host: Host, known: bool
) -> None:
    assert remembered(3).on(build_batch([(host, [])], ProfileTable.build([]))).tolist() == [known]


@pytest.mark.parametrize(("spread", "residual"), [(0.01, 1.0), (0.3, 0.9)])
def test_noisier_repeats_are_shrunken_more(spread: float, residual: float) -> None:
    left = np.random.default_rng(0).normal(0, residual, 50)
    within, count = np.full(50, spread), np.full(50, 4.0)
    assert shrink_of(left, within, count) == pytest.approx(np.clip(spread / (left.var() - spread), 0.2, 20), rel=1e-9)


def test_what_is_written_is_read_back() -> None:
    memory = remembered(3)
    assert Memory.from_json(memory.to_json()) == memory
