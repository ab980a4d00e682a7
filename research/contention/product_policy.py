"""The product as a placement policy: demand over time from the past, contention by its prior, and its own order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from advisor.domain import Host, Instance, Inventory, PlacementRequest
from advisor.placement.decision import recommend
from advisor.prediction.active import ActivePredictor
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.data.scene import slot_values
from models.physics.prior import PriorPredictor, solve
from models.profiling.demand_estimation import Window, estimated, everybody, tally
from profiler.demand import Demand
from research.contention.policies import Hosts
from research.contention.policy_world import World

WINDOW_S = 300.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MANY = 1e6


def demands(world: World) -> list[Demand]:
    """What the product's tally knows of each VM after its past."""
    means = world.past.mean(axis=0)
    names = [str(at) for at in range(len(world))]
    windows: list[list[Window]] = [[] for _ in names]
    for number, row in enumerate(world.past):
        others = everybody({name: (float(row[at]), float(means[at])) for at, name in enumerate(names)})
        time_s = (number + 1) * WINDOW_S
        for at, name in enumerate(names):
            windows[at].append(Window(time_s, float(row[at]), others.get(name)))
    return [estimated(tally(rows), vcpus=int(world.vcpus[at])) for at, rows in enumerate(windows)]


class ProductPolicy:
    """Places the VMs of a world on `count` hosts of `cpus` CPUs; `known` are their demands."""

    def __init__(self, world: World, known: list[Demand], count: int, cpus: int, most: float) -> None:
        self.world = world
        self.instances = [
            Instance(f"v{at:05}", vcpus=int(world.vcpus[at]), demand={"cpu": demand}) for at, demand in enumerate(known)
        ]
        self.hosts = [
            Host(f"h{at:04}", "kvm", cpus, MANY, cpu_overcommit=max(most / cpus, 0.01) + 1e-9) for at in range(count)
        ]
        self.active = ActivePredictor(PriorPredictor())
        seen = {host.id: NOW for host in self.hosts}
        self.snapshot = ClusterSnapshot.build(Inventory(tuple(self.hosts), (), ()), seen=seen, pending=(), taken_at=NOW)

    def best(self, vm: int) -> int:
        """The host that the product puts first. Raises ValueError where it says that none has room."""
        request = PlacementRequest(self.instances[vm], limit=1, explain=False, commands=False, mend=False)
        answer = recommend(self.snapshot, QuestionContext(self.active, NOW, 1e9), request)
        if not answer.candidates:
            raise ValueError(f"no host has room for VM {vm}")
        return int(answer.candidates[0].host[1:])

    def risk(self, _hosts: Hosts, vm: int) -> Floats:
        """The part of their time in which the instances of each host are short with the VM, on average; (H,)."""
        scenes = self.snapshot.scenes
        width = scenes.driver_cpus.shape[1]
        values = slot_values(self.instances[vm], 0, width, width)
        count = len(scenes)
        filled = {name: np.broadcast_to(value, (count, *np.shape(value))).copy() for name, value in values.items()}
        batch = scenes.with_slot(**filled)
        short = np.where(batch.present, solve(batch).cpu.short, 0.0)
        return np.asarray(short.sum(axis=1) / batch.present.sum(axis=1))

    def put(self, vm: int, host: int) -> None:
        """Place a VM."""
        placed = replace(self.instances[vm], host=self.hosts[host].id)
        self.snapshot = self.snapshot.changed(seen={}, pending=(), taken_at=NOW, instances={placed.id: placed})
