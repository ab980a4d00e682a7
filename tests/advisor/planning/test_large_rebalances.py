"""Rebalances of clouds with more hosts than are tried one by one."""

from __future__ import annotations

from advisor.domain import Host, Instance
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.local_search import SHORTLIST, SMALL_CLOUD
from advisor.planning.assignment.packing_problem import Goal
from advisor.prediction.active import ActivePredictor
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from tests.advisor.planning.planning_cases import NOW, snapshot

CROWDED, BUSY = 4, SHORTLIST + 12


def test_instances_leave_crowded_hosts_for_idle_ones_with_many_instances_not_for_busy_ones_with_few() -> None:
    """Four CPUs each: four hosts with a demand of 4.5, 36 where one instance demands three, and 32 idle ones with five
    instances each, so that the fewest instances are where the fewest CPUs are free."""
    hosts = tuple(Host(f"h{at:02}", "kvm", 4, 65_536, cpu_overcommit=8.0) for at in range(72))
    assert len(hosts) > SMALL_CLOUD

    def vm(number: int, host: Host, cpus: float) -> Instance:
        cpus += (hosts.index(host) + number) / 10_000  # no two are alike, so that no solver sees all there is
        return Instance(f"{host.id}-{number}", 3, 1_024, host=host.id, demand={"cpu": Demand(cpus)})

    crowded, busy, idle = hosts[:CROWDED], hosts[CROWDED : CROWDED + BUSY], hosts[CROWDED + BUSY :]
    instances = [vm(number, host, 1.5) for host in crowded for number in range(3)]
    instances += [vm(0, host, 2.9) for host in busy]
    instances += [vm(number, host, 0.01) for host in idle for number in range(5)]
    found = assign(
        snapshot(hosts, *instances),
        ActivePredictor(PriorPredictor()),
        Goal("rebalance", time_limit_s=60.0),
        now=NOW,
        fresh_s=60.0,
    )
    moved = {name.partition("-")[0]: host for name, host in found.where.items()}
    assert moved.keys() == {host.id for host in crowded}
    assert set(moved.values()) <= {host.id for host in idle}
    assert found.search.ended in {"search", "proven"}
