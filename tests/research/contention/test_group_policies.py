"""Policies on hosts made of control groups: everybody is placed once, with the same work, and tables pair runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from research.contention import group_policies
from research.contention.container_mixes import HOSTS_OF_A_SET, MEASURED_S, QUOTA_CPUS, WARM_UP_S, Mix
from research.contention.group_policies import MOST, SIZE, by_product, by_risk, draw, figures, mix_of, table
from research.contention.policies import sum_of_means
from research.contention.policy_tables import OURS
from research.contention.policy_world import World


def cloud() -> World:
    """VMs of several sizes, each with a level of its own."""
    rng = np.random.default_rng(3)
    vcpus = rng.choice([1, 2, 4], 80)
    level = np.minimum(rng.lognormal(np.log(0.12), 0.6, 80), 0.9)
    cpus = np.minimum(level * rng.lognormal(-0.08, 0.4, (80, 80)), 1.0) * vcpus
    return World("made up", vcpus, cpus[:40], cpus[40:])


def test_a_set_asks_for_its_load_of_hosts_with_one_cpu() -> None:
    drawn = draw(cloud(), 0)
    assert len(drawn) == SIZE
    assert set(drawn.vcpus.tolist()) == {1}
    assert drawn.past.mean(axis=0).sum() / HOSTS_OF_A_SET == pytest.approx(group_policies.LOADS[0], rel=0.05)
    assert drawn.future.max() <= 1.0


@pytest.mark.parametrize("place", [by_product, lambda drawn: by_risk(drawn, sum_of_means)])
def test_every_vm_has_a_host_and_no_host_too_many(place: Any) -> None:
    host_of = place(draw(cloud(), 1))
    assert len(host_of) == SIZE
    assert max(Counter(host_of).values()) <= MOST
    assert set(host_of) <= set(range(HOSTS_OF_A_SET))


def test_policies_differ_in_where_vms_are_and_in_nothing_else() -> None:
    drawn = draw(cloud(), 2)
    rng = np.random.default_rng(1)

    def work(mix: Mix) -> dict[str, Any]:
        return {one.spec.id: one for host in mix.hosts for one in host.containers}

    one, other = (mix_of(drawn, 1, 3, "some", (rng.permutation(SIZE) % HOSTS_OF_A_SET).tolist()) for _ in range(2))
    assert work(one) == work(other)
    assert one.hosts != other.hosts
    assert all(host.quota_cpus == QUOTA_CPUS for host in one.hosts)
    some = work(one)["c5"]
    first = round((len(drawn.future) - WARM_UP_S - MEASURED_S) / 2)
    assert some.demand == pytest.approx(QUOTA_CPUS * drawn.future[first : first + WARM_UP_S + MEASURED_S, 5])


def run(policy: str, instances: str, wait_s: float, disturbed: bool = False) -> dict[str, Any]:
    outcomes = [
        {"share": 1 / (1 + wait_s), "run_s": 1.0, "wait_s": wait_s, "short_100ms": wait_s, "agent": {"short_1s": 0.5}},
        {"share": None, "run_s": 0.0, "wait_s": 0.0, "short_100ms": 0.0, "agent": {"short_1s": 0.0}},
    ]
    hosts = [{"containers": [{"outcome": outcome} for outcome in outcomes]}]
    return {"family": "policies", "placement": policy, "instances": instances, "disturbed": disturbed, "hosts": hosts}


def test_figures_count_those_who_asked_for_something() -> None:
    assert figures(run("some", "a", 0.25)) == {"lost": 0.2, "short_100ms": 0.25, "short_1s": 0.5}


def test_the_table_compares_undisturbed_runs_of_the_same_work() -> None:
    records = [
        run(OURS, "a", 0.1), run(OURS, "b", 0.2), run("some", "a", 0.3), run("some", "b", 0.9, disturbed=True),
    ]  # fmt: skip
    lines = table(records).splitlines()
    assert lines[2].startswith(f"| {OURS} | 2 |")
    assert lines[3].startswith("| some | 1 | 23.1 | 30.0 | 50.0 | 14.0 [14.0, 14.0] | 20.0 [20.0, 20.0] |")


def test_a_line_that_is_none_is_named(tmp_path: Any) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text('{"family": "policies"}\n{', encoding="utf-8")
    with pytest.raises(ValueError, match=r"runs\.jsonl, line 2"):
        group_policies.read(file)
