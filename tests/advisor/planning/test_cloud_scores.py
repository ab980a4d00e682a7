"""Scores of a cloud before and after a plan: from predictions alone, one VM at a time."""

from __future__ import annotations

import pytest

from advisor.domain import Host, Instance
from advisor.planning.cloud_evaluation import CloudEvaluation
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from tests.advisor.planning.planning_cases import snapshot

HOSTS = tuple(Host(name, "kvm", pcpus=1, memory_mb=4096) for name in ("h1", "h2"))


def evaluated(*places: str) -> CloudEvaluation:
    there = tuple(
        Instance(f"i{at}", vcpus=1, memory_mb=64, host=host, demand={"cpu": Demand(1.0)})
        for at, host in enumerate(places)
    )
    return CloudEvaluation.of(snapshot(HOSTS, *there), PriorPredictor())


def test_two_vms_that_share_a_cpu_score_half_and_apart_they_score_all() -> None:
    together, apart = evaluated("h1", "h1").sums(0.9), evaluated("h1", "h2").sums(0.9)
    assert (together.score, together.score_lowest) == (pytest.approx(50.0), pytest.approx(50.0))
    assert together.scores == (0, 0, 2, 0, 0)
    assert apart.score == pytest.approx(100.0)
    assert apart.scores == (0, 0, 0, 0, 2)


def test_each_score_is_the_lesser_of_throughput_and_cpu_delivered() -> None:
    found = evaluated("h1", "h1", "h1", "h2")
    effects = [effect for there in found.effects().values() for effect in there]
    by_hand = [100 * min(one.throughput_ratio.expected, one.cpu.share, 1.0) for one in effects if one.cpu]
    assert len(by_hand) == 4
    assert found.scores().mean == pytest.approx(sum(by_hand) / 4)
    assert found.scores().lowest == pytest.approx(min(by_hand))


def test_an_empty_cloud_has_no_score() -> None:
    found = evaluated().sums(0.9)
    assert (found.score, found.score_lowest, found.scores) == (None, None, ())
