"""The testbed of a scene: containers on this machine, the line behind their uplink, and their measured outcomes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.campaign import Member
from lab.control_groups import GroupMaker, device_of
from lab.errors import PreparationError, ToolError
from lab.instances import RunningInstance, RunSetup
from lab.instances.containers import ContainerInstances, LabContainer
from lab.measure import RunMeasurement, Timing, measure
from lab.network import Wiring, batch
from lab.processes import call
from lab.resource_registry import ResourceRegistry
from lab.schedule import PlacedMember
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from profiler.observed import IsolationSettings
from research.benchmarks.scenarios.scenes import PairScene, ScenePart

UPLINK = "nic"
# A physical card is a device and the line behind it. The lab's line is the device itself, with a queue of its own, so
# another device is put before it: what leaves the bridge by `nic` comes out of `wire` and goes on to the line.
_WIRE = (
    "link add beyond type bridge",
    "link set beyond addrgenmode none up",
    f"link add {UPLINK} type veth peer name wire",
    "link set uplink master beyond",
    "link set wire addrgenmode none master beyond up",
    f"link set {UPLINK} addrgenmode none master bridge up",
)
# A card stops its queue while the line is busy, so that what waits does so in its queueing discipline. These devices do
# not: between two equally fast ones a queue that once came about behind the first would stand there for ever.
_FASTER = 1.02
_LIMITS = {
    "cpu": ("cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.cfs_burst_us"),
    "cpuset": ("cpuset.cpus",),
    "blkio": ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"),
    "unified": ("cpu.max", "cpu.max.burst", "cpu.weight", "cpuset.cpus", "io.max"),
}


class WorkingContainers(ContainerInstances):
    """Containers of which all run and only some have work."""

    working: frozenset[str] | None = None

    @property
    def running(self) -> list[RunningInstance]:
        return [one for one in self._standing if self.working is None or one.placed.instance in self.working]


@dataclass(frozen=True, slots=True)
class Testbed:
    """A built scene. `switch` is the namespace with the bridge, which plays the host's network."""

    scene: PairScene
    containers: WorkingContainers
    switch: str
    version: int

    def measured(self, names: Sequence[str], timing: Timing) -> RunMeasurement:
        """What these instances reach when they work at the same time; RunError when one of them fails."""
        self.containers.working = frozenset(names)
        try:
            return measure(self.containers, timing, {party.name: party.rate for party in self.scene.parties})
        finally:
            self.containers.working = None

    def labels(self, party: ScenePart) -> Mapping[str, str]:
        """Identifiers of the instance on its host: control group, network address, disk."""
        container = self._container(party)
        address = Path(f"/run/netns/{Path(container.namespace).name}")
        shown = call(["ip", "-n", address.name, "-o", "link", "show", "eth0"])
        found = {"cgroup": container.group, "mac": shown.split("link/ether ")[1].split()[0]}
        disk = device_of(container.site.files)
        return {**found, "disk": disk} if disk else found

    def dump(self) -> dict[str, str]:
        """Everything that a rendered command may set: files of both control groups, and queues of the uplink."""
        found = {}
        for party in self.scene.parties:
            for where, group in _trees(self._container(party).group):
                for name in _LIMITS[where]:
                    if (group / name).exists():
                        found[str(group / name)] = (group / name).read_text(encoding="ascii")
        for what in ("qdisc", "class", "filter"):
            found[what] = call(["tc", "-n", self.switch, what, "show", "dev", UPLINK])
        return found

    def has_fq_codel(self) -> bool:
        """Whether this kernel knows that queue, asked where nothing is sent."""
        where = ["tc", "-n", self.switch, "qdisc"]
        try:
            call([*where, "add", "dev", "lo", "root", "fq_codel"])
        except ToolError:
            return False
        call([*where, "del", "dev", "lo", "root"])
        return True

    def _container(self, party: ScenePart) -> LabContainer:
        found = next(one for one in self.containers.running if one.placed.instance == party.name)
        assert isinstance(found, LabContainer)
        return found


@contextmanager
def standing(scene: PairScene, registry: ResourceRegistry, maker: GroupMaker, folder: Path) -> Iterator[Testbed]:
    """Make the containers of a scene and their network; nothing of them is left at the end. LabError on failure."""
    placed = tuple(_placed(scene, party) for party in scene.parties)
    workloads = tuple(party.workload for party in scene.parties)
    line = None if scene.line_mbit is None else scene.line_mbit * _FASTER
    with WorkingContainers(RunSetup(registry, placed, workloads, folder, Wiring(line_mbit=line)), maker) as containers:
        switch = registry.network("switch")
        batch(["ip", "-n", switch], _WIRE)
        yield Testbed(scene, containers, switch, maker.version)


def _placed(scene: PairScene, party: ScenePart) -> PlacedMember:
    member = Member(party.name, party.name, 1.0, 1, IsolationSettings())
    clients = scene.clients if party.workload.has_generator else None
    return PlacedMember(party.name, member, tuple(range(scene.pcpus)), clients, "")


def _trees(group: str) -> Iterator[tuple[str, Path]]:
    for where, mount in find_mounts(LiveSource()).items():
        if where in _LIMITS:
            yield where, Path(mount, group)


def unfit(scenes: Sequence[PairScene]) -> str:
    """Why these scenes cannot be built on this machine, in one sentence; empty where they can."""
    if os.geteuid() != 0:
        return "control groups and network namespaces need root"
    wanted = {tool for scene in scenes for party in scene.parties for tool in party.workload.tools}
    missing = sorted(tool for tool in wanted | {"ip", "tc", "cgset"} if shutil.which(tool) is None)
    if missing:
        return f"{', '.join(missing)} must be installed"
    if not {0, 1} <= os.sched_getaffinity(0):
        return "CPUs 0 and 1 must both be there"
    try:
        GroupMaker().prepare()
    except PreparationError as error:
        return str(error)
    return ""
