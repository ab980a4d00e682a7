"""Balancing rules of other systems, the check of moves at their moment, and clouds with rules; oracles by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.domain import Host, Instance, Inventory, PlanKind
from advisor.inventories.static import load_inventory
from profiler.demand import Demand
from research.arena.balancers import imbalance_of, incus, one_drs_balance, one_drs_pack, proxmox, score_of
from research.arena.clusters import SimulatedCluster
from research.arena.moments import Checked, checked
from research.arena.rebalances import Rebalanced, by_cotenant
from research.arena.ruled import SIZES, Size, means_of, metered, ruled
from research.benchmarks.peers.__main__ import Contest
from research.benchmarks.peers.asked import question

ROOT = Path(__file__).parents[2]
SMALL = Size(6, 60, 64, 524_288)


def cloud(*where: tuple[str, float], memory_mb: int = 1_000, **labels: str) -> Inventory:
    """Hosts h1 to h3 of ten CPUs and 10,000 MB; instances of two vCPUs on a host with a demand; `labels` of the
    first."""
    hosts = tuple(Host(f"h{at}", "kvm", 10, 10_000, cpu_overcommit=2.0, labels={"zone": "a"}) for at in (1, 2, 3))
    instances = [
        Instance(f"i{at}", 2, memory_mb, host=host, demand={"cpu": Demand(cpus)})
        for at, (host, cpus) in enumerate(where)
    ]
    instances[0] = replace(instances[0], labels=labels)
    return Inventory(hosts, tuple(instances))


def labelled(inventory: Inventory, **labels: dict[str, str]) -> Inventory:
    """The same with labels of some instances."""
    return replace(
        inventory, instances=tuple(replace(one, labels=labels.get(one.id, one.labels)) for one in inventory.instances)
    )


def test_imbalance_is_0_where_hosts_are_alike_and_1_where_one_has_everything() -> None:
    assert imbalance_of(np.array([0.3, 0.3, 0.3])) == 0.0
    assert imbalance_of(np.array([0.9, 0.0, 0.0])) == pytest.approx(1.0)
    # Loads 0.6 and 0.2: mean 0.4, deviation 0.2, so 0.5 of sqrt(1).
    assert imbalance_of(np.array([0.6, 0.2])) == pytest.approx(0.5)


def test_proxmox_moves_what_leaves_the_least_imbalance_until_it_is_below_the_threshold() -> None:
    # h1 is loaded by (0.6 + 0.3) / 2 = 0.45, the others by 0: imbalance 1. The first move leaves loads 0.3, 0.15, 0, so
    # 0.5; the second 0.15, 0.15, 0.15, so 0.
    moved = proxmox(cloud(("h1", 2.0), ("h1", 2.0), ("h1", 2.0)))
    assert moved == [(("i0", "h2"),), (("i1", "h3"),)]


def test_proxmox_leaves_alone_what_is_within_the_threshold_or_gains_less_than_the_margin() -> None:
    assert proxmox(cloud(("h1", 1.0), ("h2", 1.0), ("h3", 1.0))) == []
    # One instance alone is as uneven on every host.
    assert proxmox(cloud(("h1", 2.0))) == []


def test_proxmox_moves_pairs_together_and_keeps_others_apart_and_who_stays() -> None:
    uneven = cloud(("h1", 2.0), ("h1", 2.0), ("h2", 1.0))
    pair = labelled(uneven, i0={"affinity": "p"}, i1={"affinity": "p"})
    assert proxmox(pair) == []  # moving both is as uneven as before
    # i0 on h3 would be best, and i0 on h2 is where i2 is.
    apart = labelled(uneven, i0={"anti_affinity": "g"}, i2={"anti_affinity": "g"}, i1={"never_move": "true"})
    assert proxmox(apart) == [(("i0", "h3"),)]


def test_a_score_of_incus_is_in_whole_per_cent() -> None:
    assert score_of(5.59, 3_990, 10, 10_000) == (39 + 55) // 2


def test_incus_moves_one_at_a_time_to_the_least_loaded_while_that_stays_below_the_middle() -> None:
    # Scores: h1 (60 + 60) // 2 = 60 by six of 1,000 MB and 1 CPU, others 0, middle 30. Each adds its memory and its two
    # vCPUs: (10 + 20) // 2 = 15 < 30, so one goes to h3, the last of equals. Then h1 50, h2 0, h3 10: middle 25, one to
    # h2. Then h1 40, h2 10, h3 10: middle 25, (20 + 30) // 2 = 25 is not below it: no more.
    moved = incus(cloud(*[("h1", 1.0)] * 6))
    assert moved == [(("i0", "h3"),), (("i1", "h2"),)]


def test_incus_leaves_a_difference_below_the_threshold_and_who_cannot_migrate_live() -> None:
    # 10 and 10 and 9 per cent: 10 % of the highest.
    assert incus(cloud(("h1", 1.0), ("h2", 1.0), ("h3", 0.8))) == []
    assert incus(cloud(*[("h1", 1.0)] * 6, never_move="true"))[0] == (("i1", "h3"),)


def test_one_drs_balances_to_the_lowest_highest_use() -> None:
    uneven = cloud(("h1", 2.0), ("h1", 2.0), ("h1", 2.0))
    moved = one_drs_balance(uneven)
    assert len(moved) == 2
    assert {host for ((_, host),) in moved} == {"h2", "h3"}


def test_one_drs_keeps_groups_and_who_is_blocked() -> None:
    uneven = cloud(("h1", 2.0), ("h1", 2.0), ("h1", 2.0), ("h2", 0.1), ("h3", 0.1))
    ruled_ones = labelled(
        uneven, i0={"never_move": "true"}, i1={"anti_affinity": "g"}, i3={"anti_affinity": "g"}, i2={"affinity": "p"},
        i4={"affinity": "p"},
    )  # fmt: skip
    after = {one.id: one.host for one in ruled_ones.instances} | {
        name: host for stage in one_drs_balance(ruled_ones) for name, host in stage
    }
    assert after["i0"] == "h1"
    assert after["i1"] != after["i3"]
    assert after["i2"] == after["i4"]
    use = {
        host: sum(one.demand["cpu"].mean for one in uneven.instances if after[one.id] == host)
        for host in after.values()
    }
    assert max(use.values()) == pytest.approx(2.1)  # three of two CPUs on three hosts, and the pair has 0.1 beside it


def test_one_drs_packs_onto_the_fewest_hosts() -> None:
    # Four of 4,000 MB need two hosts of 10,000 MB.
    spread = cloud(("h1", 1.0), ("h2", 1.0), ("h3", 1.0), ("h1", 1.0), memory_mb=4_000)
    after = {one.id: str(one.host) for one in spread.instances}
    after |= {name: host for stage in one_drs_pack(spread) for name, host in stage}
    assert sorted(list(after.values()).count(host) for host in set(after.values())) == [2, 2]


def test_a_move_is_impossible_without_room_at_its_moment_though_all_fit_at_the_end() -> None:
    # h1 and h2 are full of memory; both swap one of 6,000 MB. Nothing fits while both are there.
    full = cloud(("h1", 1.0), ("h2", 1.0), memory_mb=6_000)
    assert checked(full, [(("i0", "h2"),), (("i1", "h1"),)]) == Checked(0, 1, 0)
    assert checked(full, [(("i0", "h3"),), (("i1", "h1"),), (("i0", "h2"),)]) == Checked(0, 0, 0)
    assert checked(full, [(("i0", "h2"),)]) == Checked(0, 1, 1)


def test_rules_that_a_plan_breaks_are_counted_and_those_broken_before_are_not() -> None:
    apart = {"anti_affinity": "g"}
    some = labelled(cloud(("h1", 1.0), ("h2", 1.0), ("h3", 1.0)), i0=apart, i1=apart)
    assert checked(some, [(("i0", "h2"),)]) == Checked(1, 1, 0)
    assert checked(some, [(("i1", "h3"),), (("i0", "h2"),)]) == Checked(0, 0, 0)
    together = labelled(some, i0={"affinity": "p"}, i1={"affinity": "p"})  # apart from the start
    assert checked(together, [(("i2", "h1"),)]) == Checked(0, 0, 0)
    staying = labelled(some, i0={"never_move": "true", "require.zone": "b"})
    assert checked(staying, [(("i0", "h3"),)]) == Checked(1, 1, 0)  # its zone was wrong before, too


def test_a_cloud_with_rules_keeps_them_all_at_the_start_and_has_every_kind() -> None:
    inventory = ruled(1, SMALL, 2.0)
    assert checked(inventory, []) == Checked(0, 0, 0)
    broken = [(one.id, "pve0001") for one in inventory.instances]
    assert checked(inventory, [tuple(broken)]).broken > 0
    assert sum(one.never_moves for one in inventory.instances) == 3
    assert sum(one.affinity_group is not None for one in inventory.instances) == 2
    assert sum(bool(one.anti_affinity_groups) for one in inventory.instances) == 4  # a zone has two hosts
    assert {one.required_labels["zone"] for one in inventory.instances} == {"az1", "az2", "az3"}
    described = metered(inventory).instances[0].demand["cpu"]
    assert described.mean == inventory.instances[0].demand["cpu"].mean
    assert described.spread == pytest.approx(0.76 * described.mean)


@pytest.mark.parametrize("kind", ["rebalance", "consolidate"])
def test_a_plan_of_cotenant_breaks_no_rule_and_each_move_can_be_made_at_its_moment(kind: PlanKind) -> None:
    inventory = ruled(2, SIZES["12 x 150"], 2.0)
    wanted = by_cotenant(SimulatedCluster.of(metered(inventory), 2), None, kind)
    assert sum(map(len, wanted.stages)) == wanted.moves > 3
    assert checked(inventory, wanted.stages) == Checked(0, 0, 0)


def test_a_part_of_a_cluster_wants_the_same_as_in_the_whole() -> None:
    whole = SimulatedCluster.of(ruled(1, SMALL), 1)
    part = whole.part({"pve0002", "pve0005"})
    names = [one.id for one in whole.inventory.instances]
    assert {one.host for one in part.inventory.instances} == {"pve0002", "pve0005"}
    for at, one in enumerate(part.inventory.instances):
        assert (part.demand[:, at] == whole.demand[:, names.index(one.id)]).all()


def test_peers_know_hosts_with_what_they_may_promise_and_groups_with_their_policy() -> None:
    described = question(
        SimulatedCluster.of(
            labelled(cloud(("h1", 1.5), ("h2", 1.0)), i0={"affinity": "p"}, i1={"never_move": "true"}), 1
        )
    )
    assert described["hosts"][0] == {
        "name": "h1",
        "cpus": 10,
        "whole_memory_mb": 10_000,
        "vcpus": 20.0,
        "memory_mb": 10_000.0,
    }
    assert described["vms"][0] == {"name": "i0", "host": "h1", "vcpus": 2, "memory_mb": 1_000, "cpu": 1.5}
    assert [(one["policy"], one["members"]) for one in described["groups"]] == [("affinity", ["i0"])]
    assert described["never"] == ["i1"]
    assert math.isfinite(described["vms"][1]["cpu"])


def test_a_snapshot_of_a_cloud_is_a_world_for_all_balancers() -> None:
    """As `cotenant demo` writes it: some VMs without a known demand, and hosts without zones."""
    file = ROOT / "api" / "cli" / "demo_cloud" / "cloud.yaml"
    recorded = means_of(load_inventory(file))
    assert len(recorded.instances) == 150
    contest = Contest.of(recorded, 1)
    assert [len(zone.inventory.hosts) for zone in contest.zones] == [12]
    row = contest.judged(Rebalanced(contest.cloud))
    assert (row["moves"], row["rules broken"], row["hosts"]) == (0, 0, 12)
