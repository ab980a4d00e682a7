"""A small cloud for planning, and a plan made by hand for the report; profiles are made up."""

from __future__ import annotations

from datetime import UTC, datetime

from advisor.domain import (
    Band,
    Effect,
    Host,
    Instance,
    Inventory,
    IsolationSettings,
    Pinning,
    Plan,
    PlanRequest,
    PlanStep,
    Rejection,
    WorkloadProfile,
)
from advisor.snapshot import ClusterSnapshot
from profiler.observed import NetworkSettings

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WORKLOADS = (
    WorkloadProfile("cpu", {"cpu": 100.0, "block": 0.0}),
    WorkloadProfile("web", {"cpu": 60.0, "driver_domain.cpu": 40.0}),
    WorkloadProfile("bulk", {"cpu": 40.0, "driver_domain.cpu": 50.0, "net_mbit": 800.0}),
)


def host(name: str, memory_mb: float = 8192, pcpus: int = 2) -> Host:
    return Host(name, "xen", pcpus, memory_mb, nic_mbit=1000)


def cloud(*instances: Instance, hosts: tuple[Host, ...] = (host("h1"), host("h2"))) -> Inventory:
    return Inventory(hosts, instances, WORKLOADS)


def snapshot(hosts: tuple[Host, ...], *instances: Instance, seen: bool = True) -> ClusterSnapshot:
    inventory = Inventory(hosts, instances, WORKLOADS)
    when = dict.fromkeys((one.id for one in hosts), NOW) if seen else {}
    return ClusterSnapshot.build(inventory, seen=when, pending=(), taken_at=NOW)


def vm(name: str, workload: str = "cpu", on: str | None = None, memory_mb: float = 1024, **more: object) -> Instance:
    return Instance(name, 1, memory_mb, host=on, workload=workload, **more)  # type: ignore[arg-type]


def band(expected: float, half: float = 0.1) -> Band:
    return Band(expected, expected - half, expected + half)


def effect(name: str, ratio: float, before: float | None = None, *, outside: bool = False) -> Effect:
    return Effect(name, band(ratio), band(1 / ratio), None if before is None else band(before), outside)


def plan_by_hand() -> tuple[Inventory, Plan]:
    """shop-7 goes to h1, where db-1 pays for it and falls below its limit; huge-1 finds no host; h3 is empty."""
    pinning = Pinning(((1,),))
    placed = PlanStep(
        "shop-7",
        "h1",
        score=0.7,
        settings=IsolationSettings(pinning, 100, 512, NetworkSettings("shared", 200, 1000)),
        new_vm=effect("shop-7", 0.9),
        neighbours=(effect("db-1", 0.7, 0.95),),
        why="Both want pCPU 1.",
    )
    refused = (
        Rejection("h1", "capacity.memory", "needs 99999 MB, 7168 MB free"),
        Rejection("h2", "capacity.memory", "needs 99999 MB, 7168 MB free"),
        Rejection("h3", "host.no_data", "no fresh data: the age of its data is unknown, at most 3600 s are allowed"),
    )
    before = {"h1": (effect("db-1", 0.95),), "h2": (effect("bulk-1", 0.6),), "h3": ()}
    after = {
        "h1": (effect("db-1", 0.7, 0.95), effect("shop-7", 0.9, outside=True)),
        "h2": (effect("bulk-1", 0.6, 0.6),),
        "h3": (),
    }
    steps = (placed, PlanStep("huge-1", None, refused))
    inventory = cloud(vm("db-1", on="h1", min_throughput_ratio=0.8), vm("bulk-1", "bulk", on="h2"))
    asked = PlanRequest(instances=(vm("shop-7"), vm("huge-1", memory_mb=99_999)))
    return inventory, Plan("0190-plan", NOW, "v7", "measured", steps, before, after, asked)
