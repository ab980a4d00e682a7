"""Demand in the snapshot: hosts whose residents want other amounts are not alike."""

from __future__ import annotations

from datetime import UTC, datetime

from advisor.domain import Host, Instance, Inventory
from advisor.snapshot import ClusterSnapshot
from profiler.demand import Demand

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _snapshot(first: Demand | None, second: Demand | None) -> ClusterSnapshot:
    hosts = tuple(Host(name, "kvm", 8, 16_384) for name in ("h1", "h2"))
    instances = tuple(
        Instance(f"i-{host.id}", host=host.id, demand={} if demand is None else {"cpu": demand})
        for host, demand in zip(hosts, (first, second), strict=True)
    )
    return ClusterSnapshot.build(Inventory(hosts, instances), seen={}, pending=(), taken_at=NOW)


def test_hosts_whose_residents_want_the_same_are_alike() -> None:
    first, second = _snapshot(Demand(0.4), Demand(0.4)).fingerprints
    assert first == second


def test_hosts_whose_residents_want_other_amounts_are_not_alike() -> None:
    for other in (None, Demand(0.5), Demand(0.4, spread=0.1)):
        first, second = _snapshot(Demand(0.4), other).fingerprints
        assert first != second


def test_a_changed_demand_gives_the_snapshot_that_building_anew_gives() -> None:
    before, wanted = _snapshot(Demand(0.4), Demand(0.4)), _snapshot(Demand(0.4), Demand(0.9))
    changed = Instance("i-h2", host="h2", demand={"cpu": Demand(0.9)})
    found = before.changed(seen={}, pending=(), taken_at=NOW, instances={"i-h2": changed})
    assert found.fingerprints.tolist() == wanted.fingerprints.tolist()
    assert found.residents == wanted.residents
