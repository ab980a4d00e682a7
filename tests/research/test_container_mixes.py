"""The plan of the real measurement of contention, the work of its containers, and how its lines are read again."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from research.contention.container_mixes import (
    HOSTS_OF_A_SET,
    MEASURED_S,
    PLACEMENTS,
    WARM_UP_S,
    Kind,
    Mix,
    PlannedContainer,
    host_spec,
    jobs,
    mix_record,
    offered_cpus,
    plan,
)
from research.contention.host_spec import InstanceSpec

SECONDS = 400.0


@pytest.fixture(scope="module")
def mixes() -> list[Mix]:
    return plan(1, two_cpus=30, one_cpu=10, sets=3, repeats=5, idle=2)


def container(
    kind: Kind, demand: float = 0.3, vcpus: int = 1, burst_ms: float = 5.0, period_s: float = 0.0
) -> PlannedContainer:
    loop = kind if kind in ("closed", "hog") else "open"
    spec = InstanceSpec("c", vcpus, demand, loop, burst_ms)
    return PlannedContainer(spec, kind, "exponential", (demand,) * int(SECONDS), 7, period_s)


def test_one_seed_gives_one_plan_and_another_seed_another() -> None:
    first, again, other = (plan(seed, two_cpus=5, one_cpu=2, sets=1, repeats=1, idle=1) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_every_run_of_a_plan_has_a_name_of_its_own(mixes: list[Mix]) -> None:
    assert len({mix.id for mix in mixes}) == len(mixes) == 30 + 10 + 3 * 4 + 5 + 2


def test_families_are_interleaved(mixes: list[Mix]) -> None:
    assert len({mix.family for mix in mixes[:10]}) == 3


def test_hosts_hold_ten_to_sixty_containers_with_ids_of_their_own(mixes: list[Mix]) -> None:
    for mix in mixes:
        ids = [each.spec.id for host in mix.hosts for each in host.containers]
        assert len(set(ids)) == len(ids)
        assert 10 <= len(ids) <= 60


def test_pins_lie_on_the_host_and_demands_fit_the_vcpus(mixes: list[Mix]) -> None:
    for mix in mixes:
        for host in mix.hosts:
            for each in host.containers:
                assert set(each.spec.pin) <= set(host.cpus)
                assert 0 < each.spec.demand_cpus <= each.spec.vcpus
                assert each.spec.cap_cpus >= 0.05


def test_placements_of_a_set_hold_the_same_containers_in_other_hosts(mixes: list[Mix]) -> None:
    placed = [mix for mix in mixes if mix.instances == "g000"]
    assert {mix.placement for mix in placed} == set(PLACEMENTS)
    all_instances = [{each for host in mix.hosts for each in host.containers} for mix in placed]
    assert all(one == all_instances[0] and len(one) == 6 * HOSTS_OF_A_SET for one in all_instances)
    together = [{frozenset(each.spec.id for each in host.containers) for host in mix.hosts} for mix in placed]
    assert len({frozenset(one) for one in together}) == len(PLACEMENTS)


def test_even_means_differ_less_between_hosts_than_sorted_means(mixes: list[Mix]) -> None:
    demand = {
        mix.placement: [sum(each.spec.demand_cpus for each in host.containers) for host in mix.hosts]
        for mix in mixes
        if mix.instances == "g001"
    }
    assert np.ptp(demand["even_means"]) < 0.5 * np.ptp(demand["sorted_means"])


def test_repeats_are_the_same_containers_again(mixes: list[Mix]) -> None:
    by_id = {mix.id: mix for mix in mixes}
    again = [mix for mix in mixes if mix.repeat]
    assert Counter(mix.beside for mix in again) == {"": 5, "idle_hogs": 2}
    assert all(mix.hosts == by_id[mix.id.rpartition("r")[0]].hosts for mix in again)


@pytest.mark.parametrize("kind", ["open", "trace"])
def test_poisson_work_adds_up_to_the_demand(kind: Kind) -> None:
    rows = jobs(container(kind), SECONDS)
    assert (np.diff(rows[:, 0]) >= 0).all()
    assert rows[:, 1].sum() / SECONDS == pytest.approx(0.3, rel=0.05)


def test_lognormal_and_exponential_sizes_have_one_mean() -> None:
    rows = jobs(replace(container("open"), sizes="lognormal"), SECONDS)
    assert rows[:, 1].mean() == pytest.approx(0.005, rel=0.05)


def test_a_batch_arrives_every_period_as_one_job_for_each_vcpu() -> None:
    rows = jobs(container("batch", demand=0.5, vcpus=2, burst_ms=500.0, period_s=2.0), 10.0)
    assert rows[:, 0].tolist() == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]
    assert rows[:, 1].sum() / 10.0 == pytest.approx(0.5)


def test_a_closed_loop_alone_is_busy_for_its_demand() -> None:
    rows = jobs(container("closed", demand=0.6, vcpus=2), SECONDS)
    thinking, busy = rows.sum(axis=0)
    assert busy / (busy + thinking) == pytest.approx(0.3, rel=0.05)


def test_a_container_without_work_in_a_run_has_one_job_after_its_end() -> None:
    rows = jobs(container("open", demand=1e-9), 10.0)
    assert rows.shape == (1, 2)
    assert rows[0, 0] > 10.0


def test_offered_cpus_are_the_work_that_arrives_in_each_second() -> None:
    work = container("batch", demand=0.5, burst_ms=1000.0, period_s=2.0)
    assert offered_cpus(work, 1, 5) == [0.0, 1.0, 0.0, 1.0]
    assert offered_cpus(container("hog", demand=1.0), 1, 4) == [1.0, 1.0, 1.0]


def test_a_closed_loop_is_offered_what_it_uses_alone() -> None:
    offered = offered_cpus(container("closed", demand=0.6, vcpus=2), 0, SECONDS)
    assert len(offered) == SECONDS
    assert all(0 <= value <= 2 for value in offered)
    assert np.mean(offered) == pytest.approx(0.6, rel=0.05)


def test_a_line_of_the_runs_gives_its_hosts_back(mixes: list[Mix]) -> None:
    for mix in mixes:
        record = json.loads(json.dumps(mix_record(mix), allow_nan=False))
        for host, reported in zip(mix.hosts, record["hosts"], strict=True):
            read = host_spec(reported)
            assert (read.id, read.cpus, len(read.instances)) == (host.id, len(host.cpus), len(host.containers))
            for each, asked in zip(read.instances, host.containers, strict=True):
                assert each.demand_cpus == pytest.approx(asked.spec.demand_cpus, abs=1e-6)
                assert math.isinf(each.cap_cpus) == math.isinf(asked.spec.cap_cpus)
                assert (each.pin, each.weight, each.loop) == (asked.spec.pin, asked.spec.weight, asked.spec.loop)


def test_a_line_says_what_was_offered_in_every_measured_second(mixes: list[Mix]) -> None:
    reported = mix_record(mixes[0])["hosts"][0]["containers"][0]
    assert len(reported["offered_cpus"]) == MEASURED_S
    assert reported["series_cpus"] is None or len(reported["series_cpus"]) == WARM_UP_S + MEASURED_S
