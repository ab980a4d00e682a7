"""Placement policies on traces: who is short is exact, each baseline does what it says, and tables come from runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.contention import policy_tables
from research.contention.policies import BASELINES, Hosts, n_sigma, nova, peak_oracle, sum_of_means
from research.contention.policy_world import ENOUGH, World, fair_level, short, short_time
from research.contention.product_policy import ProductPolicy, demands


def world(seed: int, vms: int = 40, windows: int = 120) -> World:
    """VMs with bursts of their own and a day that all share."""
    rng = np.random.default_rng(seed)
    vcpus = rng.choice([1, 2, 4, 8], vms)
    level = np.minimum(rng.lognormal(np.log(0.2), 0.6, vms), 0.8)
    day = 1 + 0.4 * np.sin(np.arange(2 * windows) / 20)
    noise = rng.lognormal(-0.08, 0.4, (2 * windows, vms))
    cpus = np.minimum(level * day[:, None] * noise, 1.0) * vcpus
    return World("made up", vcpus, cpus[:windows], cpus[windows:])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.01, 8), min_size=1, max_size=12), st.floats(0.5, 16))
def test_short_is_who_gets_too_little_of_a_max_min_share(wants: list[float], cpus: float) -> None:
    demand = np.array([wants])
    found = short(demand, cpus)[0]
    if demand.sum() <= cpus:
        assert not found.any()
        return
    level = fair_level(demand[0], cpus)
    assert np.minimum(demand[0], level).sum() == pytest.approx(cpus)
    assert (found > 0).tolist() == (np.minimum(demand[0], level) < ENOUGH * demand[0]).tolist()


def test_time_short_counts_windows_in_which_something_is_wanted() -> None:
    made = World("two", np.array([1, 1]), np.ones((2, 2)), np.array([[1.0, 1.0], [1.0, 0.0]]))
    assert short_time(made, [0, 0], 1.0) == pytest.approx(2 / 3)
    assert short_time(made, [0, 1], 1.0) == 0.0


def test_each_policy_looks_at_what_it_says() -> None:
    made = world(1)
    hosts = Hosts.empty(made, 2, 16.0, 100.0)
    for vm in range(10):
        hosts.put(vm, vm % 2)
    together = made.past[:, [0, 2, 4, 6, 8, 11]].sum(axis=1)
    assert sum_of_means(hosts, 11)[0] == pytest.approx(together.mean() / 16)
    assert n_sigma(3)(hosts, 11)[0] == pytest.approx((together.mean() + 3 * together.std()) / 16)
    assert nova(hosts, 11)[0] == pytest.approx((made.vcpus[[0, 2, 4, 6, 8, 11]]).sum() / 16)
    assert peak_oracle(hosts, 11)[0] == pytest.approx(made.future[:, [0, 2, 4, 6, 8, 11]].sum(axis=1).max() / 16)


def test_the_product_spreads_vms_by_what_they_did() -> None:
    made = world(2)
    ours = ProductPolicy(made, demands(made), 3, 16, 1000.0)
    where = []
    for vm in range(len(made)):
        where.append(ours.best(vm))
        ours.put(vm, where[-1])
    loads = [made.past[:, np.array(where) == host].sum(axis=1).mean() for host in range(3)]
    assert max(loads) < 1.2 * min(loads)
    assert (ours.risk(Hosts.empty(made, 3, 16.0, 1e6), 0) >= 0).all()


def test_nobody_is_placed_on_a_host_without_room() -> None:
    made = world(4, vms=6)
    hosts = Hosts.empty(made, 2, 16.0, 0.5)
    with pytest.raises(ValueError, match="no host has room for VM 0"):
        policy_tables.least_risk(hosts, 0, sum_of_means)
    ours = ProductPolicy(made, demands(made), 2, 1, 0.5)
    with pytest.raises(ValueError, match="no host has room for VM 0"):
        ours.best(0)


def test_vms_larger_than_a_host_do_not_arrive() -> None:
    made = world(5)
    part, known = policy_tables._arrivals(made, demands(made), 40, 4, 0)
    assert (made.vcpus > 4).any()
    assert part.vcpus.max() == 4
    assert len(known) == len(part) == (made.vcpus <= 4).sum()


def test_the_level_of_every_policy_keeps_the_limit_where_it_was_chosen() -> None:
    made = world(6, vms=24, windows=60)
    known = demands(made)
    levels = policy_tables.highest_levels(made, known, 8)
    for policy, setting, pack in policy_tables._packers(made, known, 8):
        assert short_time(made, pack(levels[policy, setting]), 8) <= policy_tables.MOST_SHORT, policy


def test_only_policies_that_are_surely_better_are_told() -> None:
    def run(policy: str, order: int, short: float) -> policy_tables.Placed:
        return policy_tables.Placed("equal", "made up", 16, 4, policy, "", order, 4, short, short)

    better = {"sum of means": 0.01, "sum of p95": -0.01, "N-sigma": 0.0}
    runs = [
        run(policy, order, 0.05 + 0.1 * order - better.get(policy, 0.0))
        for policy in (*BASELINES, policy_tables.OURS)
        for order in range(policy_tables.TUNING + 3)
    ]
    text = policy_tables.better_table(runs, "short")
    assert "| sum of means | 1.00 [1.00, 1.00] |" in text
    assert text.count("made up") == 1


def test_tables_have_a_figure_of_every_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_tables, "CPUS", (8,))
    monkeypatch.setattr(policy_tables, "OVERCOMMIT", (4,))
    monkeypatch.setattr(policy_tables, "HALVINGS", 2)
    runs = policy_tables.of_world(world(3, vms=16, windows=60), vms=12, orders=1)
    text = policy_tables.tables(runs)
    assert {run.policy for run in runs} == {*BASELINES, policy_tables.OURS}
    assert " nan" not in text
    assert policy_tables.equal_table(runs, "short").count("made up") == 1
    assert policy_tables.packed_table(runs).count("made up") == 1
