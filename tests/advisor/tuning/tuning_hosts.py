"""Hosts to tune, made by hand; profiles are made up."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from advisor.domain import Host, Instance, Inventory, IsolationSettings, Pinning, WorkloadProfile
from advisor.snapshot import ClusterSnapshot
from advisor.tuning.host import HostTuning, levers_of, oracle_of, tune_host
from advisor.tuning.moves import Moves
from models.arrays import Floats
from models.physics.prior import PriorPredictor
from profiler.demand import Demand

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
# Alone: 97 % of a CPU and all but a CPU of Dom0's work, as the small files of "Who is your neighbor" (2012) ask for.
SMALL_FILES = WorkloadProfile("small-files", {"cpu": 97.0, "driver_domain.cpu": 97.0, "block": 0.0})
SYNC_WRITER = WorkloadProfile(
    "sync-writer", {"cpu": 8.0, "disk_mb_s": 1.0, "execution": 3200.0, "block": 60.0, "disk_flushes": 3194.0}
)
SENDER = WorkloadProfile("sender", {"cpu": 40.0, "driver_domain.cpu": 40.0, "net_mbit": 100.0})


def vm(name: str, mean: float, pins: tuple[int, ...] = (), *, vcpus: int = 1, **more: object) -> Instance:
    """An instance that demands so many CPUs on average, on these pCPUs, () = any."""
    settings = IsolationSettings(pinning=Pinning.all_on(pins, vcpus) if pins else None)
    demand = {"cpu": Demand(mean=mean, spread=0.3 * mean)}
    return Instance(name, vcpus, 1024, host="h", demand=demand, settings=settings, **more)  # type: ignore[arg-type]


def server(name: str, pins: tuple[int, ...] = (), workload: str = "small-files") -> Instance:
    """A server of one vCPU that keeps the driver domain busy."""
    settings = IsolationSettings(pinning=Pinning.all_on(pins, 1) if pins else None)
    return Instance(name, 1, 1024, host="h", workload=workload, settings=settings)


def snapshot(host: Host, *residents: Instance, pending: tuple[Instance, ...] = ()) -> ClusterSnapshot:
    cloud = Inventory((host,), residents, (SMALL_FILES, SENDER, SYNC_WRITER))
    return ClusterSnapshot.build(cloud, seen={host.id: NOW}, pending=pending, taken_at=NOW)


def tuned(host: Host, *residents: Instance, **asked: object) -> HostTuning:
    return tune_host(snapshot(host, *residents), 0, PriorPredictor(), **asked)  # type: ignore[arg-type]


def moves(host: Host, *residents: Instance) -> Moves:
    there = snapshot(host, *residents)
    oracle = oracle_of(there, 0, "worst")
    return Moves(oracle, levers_of(there, 0, oracle))


def expected(host: Host, *residents: Instance) -> dict[str, float]:
    """T/B of each instance, as the analytic model predicts it of the host built anew."""
    there = snapshot(host, *residents)
    kept: Floats = PriorPredictor().predict(there.scenes, ()).throughput.expected[0]
    return dict(zip([one.id for one in there.residents[0]], np.asarray(kept).tolist(), strict=False))


def carried_out(found: HostTuning, residents: tuple[Instance, ...]) -> list[tuple[Host, tuple[Instance, ...]]]:
    """The host and its instances before the first change and after each one."""
    by_id, host = {one.id: one for one in residents}, found.host
    states = [(host, tuple(by_id.values()))]
    for change in found.changes:
        host = change.host
        if change.then is not None:
            by_id[change.then.id] = change.then
        states.append((host, tuple(by_id.values())))
    return states
