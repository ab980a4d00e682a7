"""The compiled contention says what the plain functions say, on hosts of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.physics import compiled_contention, cpu_contention
from models.physics.contention import moments
from models.physics.cpu_bursts import CLOSED, HOG, OPEN
from tests.examples import examples

NAMES = ("run", "want", "short", "fair", "asked", "worst", "crowded")


def hosts(seed: int, *, count: int = 3, pinned: bool = True, varying: bool = True) -> list[Any]:
    """Arguments of `share_hosts` for random hosts of up to 70 CPUs, alone and crowded, some with sets of CPUs."""
    random = np.random.default_rng(seed)
    width = int(random.choice([1, 2, 8, 64, 70]))
    counts = random.integers(0, 25, count)
    total, z_chance = int(counts.sum()), moments()
    cpus = random.integers(1, width + 1, count).astype(float)
    host = np.repeat(np.arange(count), counts)
    allowed = np.arange(width)[None] < cpus[host][:, None]
    if pinned:
        sets = random.random((6, width)) < random.uniform(0.1, 0.9)
        some = random.random(total) < random.uniform(0, 1)
        allowed = np.where(some[:, None], sets[random.integers(0, 6, total)] & allowed, allowed)
        allowed[:, 0] |= ~allowed.any(axis=1)
    sizes = allowed.sum(axis=1).astype(float)
    vcpus = np.minimum(random.choice([0.5, 1.0, 2.0, 4.0, 16.0], total), sizes)
    busy = random.uniform(0.01, 1.2) * random.dirichlet(np.ones(max(total, 1)))[:total] * cpus[host] * count
    demand = np.minimum(busy, 0.97 * vcpus)
    day = np.ones((total, 12))
    growth = np.zeros(total)
    if varying:
        day = np.where(random.random(total)[:, None] < 0.5, random.uniform(0.2, 2.0, (total, 12)), day)
        growth = np.where(random.random(total) < 0.7, random.uniform(0, 0.8, total), 0.0)
    return [
        cpus, counts, vcpus, demand, growth, day, np.where(random.random(total) < 0.2, 0.8 * vcpus, np.inf),
        random.choice([OPEN, CLOSED, HOG], total, p=[0.5, 0.4, 0.1]).astype(np.int64),
        random.choice([0.1, 1.0, 1.0, 4.0], total), random.choice([0.5, 1.0, 2.0], total),
        random.uniform(0, 0.3, count), allowed, sizes, *z_chance,
    ]  # fmt: skip


def results_of(function: Any, arguments: list[Any]) -> list[Floats]:
    total, count = len(arguments[2]), len(arguments[0])
    found = [*(np.zeros(total) for _ in range(5)), np.ones(total), np.zeros(count)]
    function(*(np.copy(one) for one in arguments), *found)
    return found


@settings(max_examples=examples(300), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), pinned=st.booleans(), varying=st.booleans())
def test_it_says_what_the_plain_functions_say(seed: int, pinned: bool, varying: bool) -> None:
    assert cpu_contention.fastest is not cpu_contention.share_hosts
    arguments = hosts(seed, pinned=pinned, varying=varying)
    with np.errstate(all="ignore"):
        plain = results_of(cpu_contention.share_hosts, arguments)
    for name, one, other in zip(NAMES, results_of(cpu_contention.fastest, arguments), plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_host_without_consumers_and_none_at_all_are_no_trouble() -> None:
    arguments = hosts(1, count=1)
    empty = [one[:0] if len(one) == len(arguments[2]) else one for one in arguments]
    empty[1] = np.zeros(1, dtype=np.int64)
    assert results_of(cpu_contention.fastest, empty)[-1].tolist() == [0.0]


def test_arrays_that_do_not_fit_are_refused_before_they_are_read() -> None:
    arguments = hosts(2)
    for at in (0, 1, 2, 3, 5, 7, 11, 12, 13):
        wrong = list(arguments)
        wrong[at] = wrong[at][:-1]
        with pytest.raises(ValueError, match="do not fit"):
            results_of(cpu_contention.fastest, [*wrong[:2], arguments[2], *wrong[3:]] if at != 2 else wrong)


def test_thousands_of_different_sets_of_cpus_take_memory_by_their_members() -> None:
    random = np.random.default_rng(5)
    count = 3_000
    allowed = random.random((count, 64)) < 0.06
    allowed[:, 0] |= ~allowed.any(axis=1)
    sizes = allowed.sum(axis=1).astype(float)
    ones = np.ones(count)
    found = results_of(
        cpu_contention.fastest,
        [
            np.array([64.0]), np.array([count]), ones, ones * 0.01, ones * 0, np.ones((count, 1)), ones * np.inf,
            np.zeros(count, dtype=np.int64), ones, ones, np.zeros(1), allowed, sizes, np.zeros(1), np.ones(1),
        ],
    )  # fmt: skip
    assert found[0].sum() == pytest.approx(30.0, rel=0.05)


def test_without_a_library_or_with_a_broken_one_there_is_none(tmp_path: Path) -> None:
    assert compiled_contention.load(tmp_path) is None
    (tmp_path / "_cpu_contention.so").write_bytes(b"no library")
    assert compiled_contention.load(tmp_path) is None
