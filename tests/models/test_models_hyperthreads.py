"""Two hyperthreads are not two cores, where the platform says what the second one adds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.scene import SceneBatch, build_batch
from models.physics.hyperthreads import SECOND_THREAD
from models.physics.prior import solve
from tests.examples import examples
from tests.models.synthetic import TABLE, host, instance

SAID = replace(TABLE, platforms={"smt": {SECOND_THREAD: 0.3}})


def on_smt(*pins: str, platform: str = "smt", pcpus: int = 4) -> SceneBatch:
    """Instances that always want a CPU, pinned so, on a host with two threads per core: 0 and 2, 1 and 3."""
    there = host("lxc", pcpus, threads_per_core=2, platform=platform)
    return build_batch([(there, [instance(f"i{at}", "spin", pins=pin) for at, pin in enumerate(pins)])], SAID)


def test_who_runs_on_the_sibling_takes_what_a_second_thread_does_not_add() -> None:
    cores, siblings = solve(on_smt("0:0", "0:1")), solve(on_smt("0:0", "0:2"))
    np.testing.assert_array_equal(cores.throughput, 1.0)
    np.testing.assert_allclose(siblings.throughput, 0.65)
    np.testing.assert_array_equal(siblings.share, 1.0)
    np.testing.assert_array_equal(siblings.cpu.share, 1.0)


def test_where_nobody_says_what_a_thread_adds_nothing_changes() -> None:
    np.testing.assert_array_equal(solve(on_smt("0:0", "0:2", platform="other")).throughput, 1.0)


def test_unpinned_instances_share_cores_only_where_there_are_more_of_them() -> None:
    assert solve(on_smt("", "")).throughput == pytest.approx(np.ones((1, 2)))
    crowded = solve(on_smt("", "", ""))
    assert crowded.throughput == pytest.approx(np.full((1, 3), 1 - 0.35 * 2 / 3))


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.sampled_from(["0:0", "0:1", "0:2", "0:3", "", "0:0,2"]), min_size=1, max_size=5))
def test_one_more_never_helps(pins: list[str]) -> None:
    fewer, more = solve(on_smt(*pins)).throughput[0], solve(on_smt(*pins, "0:2")).throughput[0]
    assert (more[: len(pins)] <= fewer + 1e-6).all()
    assert solve(on_smt(pins[0])).throughput == pytest.approx(1.0)
