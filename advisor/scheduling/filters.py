"""Which hosts can take an instance at all, and why not: one small check per reason, each with a stable code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import Instance, PlacementRequest, Rejection
from advisor.rounding import with_slack
from advisor.scheduling.newcomer import newcomer_slot, profile_row, rows_by_host
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools, Floats
from models.physics.demands import demands
from models.physics.kinds import holds
from profiler.host_kinds import HOST_KINDS

Says = Callable[[int], str]  # a sentence about one host, by its position
_EXACT = ".10g"  # of a size: so that what is needed never looks as if it were free


@dataclass(frozen=True, slots=True)
class Question:
    """A request to a cloud of H hosts, and what is held there by everybody but the instance that is asked about (it may
    sit there already): `vcpus`, `memory_mb`, `disk_gb`, `driver_cpus` and how many they are, `others`, (H,) each;
    `exclusive` (H,) where somebody else wants to be alone."""

    snapshot: ClusterSnapshot
    request: PlacementRequest
    fresh_s: float
    vcpus: Floats
    memory_mb: Floats
    disk_gb: Floats
    driver_cpus: Floats
    others: Floats
    exclusive: Bools

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, request: PlacementRequest, fresh_s: float) -> Question:
        vcpus, memory_mb, disk_gb = (
            values.copy() for values in (snapshot.used_vcpus, snapshot.used_memory_mb, snapshot.used_disk_gb)
        )
        driver_asked, exclusive = snapshot.driver_asked, snapshot.exclusive
        others = snapshot.scenes.present.sum(axis=1).astype(np.float64)
        mine = snapshot.where(request.instance.id)
        if mine:
            driver_asked, exclusive = driver_asked.copy(), exclusive.copy()
        for host, slot in mine:
            there = [one for one in snapshot.residents[host] if one.id != request.instance.id]
            vcpus[host] = sum(one.vcpus for one in there)
            memory_mb[host] = sum(one.memory_mb for one in there)
            disk_gb[host] = sum(one.disk_gb for one in there)
            exclusive[host] = any(one.exclusive for one in there)
            others[host] = len(there)
            driver_asked[host, slot] = 0.0
        driver_cpus = driver_asked.sum(axis=1)
        return cls(snapshot, request, fresh_s, vcpus, memory_mb, disk_gb, driver_cpus, others, exclusive)

    @property
    def instance(self) -> Instance:
        return self.request.instance

    def at(self, names: Iterable[str]) -> Bools:
        """The hosts of these names, (H,)."""
        found = np.zeros(len(self.snapshot.hosts), dtype=bool)
        positions = (self.snapshot.index(name) for name in names)
        found[[one for one in positions if one is not None]] = True
        return found

    def beside(self, name: str) -> Bools:
        """Where another instance of that name is, (H,)."""
        found = np.zeros(len(self.snapshot.hosts), dtype=bool)
        if name != self.instance.id:
            found[[host for host, _ in self.snapshot.where(name)]] = True
        return found

    def nowhere(self) -> Bools:
        """No host, (H,)."""
        return np.zeros(len(self.snapshot.hosts), dtype=bool)


Check = Callable[[Question], tuple[Bools, Says]]  # which hosts it refuses, (H,), and what it says of one of them


def _enabled(question: Question) -> tuple[Bools, Says]:
    return ~question.snapshot.enabled, lambda _: "the host is disabled"


def _kind(question: Question) -> tuple[Bools, Says]:
    wanted = question.request.constraints.kind
    other = np.array([wanted not in {None, kind} for kind in HOST_KINDS])
    hosts = question.snapshot.hosts
    refused = other[question.snapshot.scenes.kind]
    return refused, lambda host: f"needs a {wanted} host, this one is {hosts[host].kind}"


def _labels(question: Question) -> tuple[Bools, Says]:
    wanted, hosts = question.request.constraints.labels, question.snapshot.hosts

    def says(host: int) -> str:
        labels = hosts[host].labels
        name = min(name for name, value in wanted.items() if labels.get(name) != value)
        return f"needs label {name}={wanted[name]}, has {labels.get(name, 'none')}"

    if not wanted:
        return question.nowhere(), says
    return np.array([not wanted.items() <= host.labels.items() for host in hosts], dtype=bool), says


def _exclude(question: Question) -> tuple[Bools, Says]:
    return question.at(question.request.constraints.exclude), lambda _: "the request excludes this host"


def _affinity(question: Question) -> tuple[Bools, Says]:
    beside = {name: question.beside(name) for name in question.request.constraints.affinity}
    refused = question.nowhere()
    for there in beside.values():
        refused |= ~there
    return refused, lambda host: f"{next(name for name in beside if not beside[name][host])} is not on this host"


def _anti_affinity(question: Question) -> tuple[Bools, Says]:
    beside = {name: question.beside(name) for name in question.request.constraints.anti_affinity}
    refused = question.nowhere()
    for there in beside.values():
        refused |= there
    return refused, lambda host: f"{next(name for name in beside if beside[name][host])} is on this host"


def _exclusive(question: Question) -> tuple[Bools, Says]:
    def says(host: int) -> str:
        there = [one for one in question.snapshot.residents[host] if one.id != question.instance.id]
        alone = next((one.id for one in there if one.exclusive), None)
        if alone is not None:
            return f"{alone} shares its host with nobody"
        return f"{question.instance.id} shares its host with nobody, and {there[0].id} is on this one"

    return question.exclusive | (question.instance.exclusive & (question.others > 0)), says


def _vcpus(question: Question) -> tuple[Bools, Says]:
    needs, pcpus, room = question.instance.vcpus, question.snapshot.scenes.pcpus, question.snapshot.room_vcpus

    def says(host: int) -> str:
        if needs > pcpus[host]:
            return f"needs {needs} vCPUs, the host has {pcpus[host]:g} pCPUs"
        limit = f"at overcommit {question.snapshot.hosts[host].cpu_overcommit:g}"
        return f"needs {needs} vCPUs, {_left(room[host], question.vcpus[host])} {limit}"

    return (needs > pcpus) | (question.vcpus + needs > with_slack(room)), says


def _memory(question: Question) -> tuple[Bools, Says]:
    needs, room, used = question.instance.memory_mb, question.snapshot.room_memory_mb, question.memory_mb
    refused = used + needs > with_slack(room)
    return refused, lambda host: f"needs {needs:{_EXACT}} MB, {_left(room[host], used[host], ' MB')}"


def _disk(question: Question) -> tuple[Bools, Says]:
    needs, room, used = question.instance.disk_gb, question.snapshot.room_disk_gb, question.disk_gb
    refused = used + needs > with_slack(room)
    return refused, lambda host: f"needs {needs:{_EXACT}} GB of disk, {_left(room[host], used[host], ' GB')}"


def _left(room: float, used: float, unit: str = "") -> str:
    if used > with_slack(room):
        return f"{used:{_EXACT}}{unit} are promised already where {room:{_EXACT}}{unit} may be"
    return f"{room - used:{_EXACT}}{unit} free"


def _pins(question: Question) -> tuple[Bools, Says]:
    pinning, pcpus = question.instance.settings.pinning, question.snapshot.scenes.pcpus
    highest = max((cpu for cpus in pinning.cpus for cpu in cpus), default=0) if pinning else 0
    return highest >= pcpus, lambda host: f"pinned to pCPU {highest}, the host has 0-{pcpus[host] - 1:g}"


def _driver_domain(question: Question) -> tuple[Bools, Says]:
    asked, used, room = _driver_asked(question), question.driver_cpus, question.snapshot.room_driver_cpus

    def says(host: int) -> str:
        return (
            f"would ask its driver domain for {asked[host]:.2f} CPUs, {used[host]:.2f} are asked for already where "
            f"{room[host]:g} may be at overcommit {question.snapshot.hosts[host].driver_overcommit:g}"
        )

    return (asked > 0) & (used + asked > with_slack(room)), says


def _driver_asked(question: Question) -> Floats:
    """What the instance asks of the driver domain of each host when it has that to itself, 0 = nothing or unknown; (H,)
    CPUs. In a container it asks nothing: the kernel works for it in its own time (`models.physics.demands`)."""
    snapshot, instance = question.snapshot, question.instance
    asked = np.zeros(len(snapshot.hosts))
    hosts = np.flatnonzero(holds(snapshot.scenes.kind, "has_driver_domain"))
    table, row, _ = profile_row(snapshot, question.request)
    rows = rows_by_host(snapshot, hosts, instance, table, row)
    if any(np.isfinite(table.column(key)[rows]).any() for key in ("driver_domain.cpu", "pages_exchanged")):
        there = replace(snapshot.scenes.take(hosts), table=table)
        slot = newcomer_slot(there, snapshot, hosts, instance, row)
        alone = replace(there, **{name: values[:, None] for name, values in slot.items()})
        asked[hosts] = demands(alone).driver[:, 0]
    return asked


def _fresh(question: Question) -> tuple[Bools, Says]:
    age, allowed = question.snapshot.age_s, question.fresh_s

    def says(host: int) -> str:
        when = "the age of its data is unknown" if age[host] == np.inf else f"it was last seen {age[host]:.0f} s ago"
        return f"no fresh data: {when}, at most {allowed:.0f} s are allowed"

    return (age > allowed) & (not question.request.constraints.allow_stale), says


CHECKS: tuple[tuple[str, Check], ...] = (
    ("host.disabled", _enabled),
    ("constraint.kind", _kind),
    ("constraint.label", _labels),
    ("constraint.exclude", _exclude),
    ("constraint.affinity", _affinity),
    ("constraint.anti_affinity", _anti_affinity),
    ("constraint.exclusive", _exclusive),
    ("capacity.vcpus", _vcpus),
    ("capacity.memory", _memory),
    ("capacity.disk", _disk),
    ("capacity.pinning", _pins),
    ("capacity.driver_domain", _driver_domain),
    ("host.no_data", _fresh),
)
OTHER_CODES = ("host.unknown", "limit.newcomer", "limit.neighbour", "limit.newcomer_latency", "limit.neighbour_latency")
CODES = (*(code for code, _ in CHECKS), *OTHER_CODES)


def apply(
    snapshot: ClusterSnapshot, request: PlacementRequest, *, fresh_s: float
) -> tuple[list[int], tuple[Rejection, ...]]:
    """Positions of the hosts that can take the instance, and the first reason for every other host in question.

    When the request names hosts, only those are in question (rule 5); a named host that does not exist is rejected.
    """
    question = Question.of(snapshot, request, fresh_s)
    left = question.at(request.hosts) if request.hosts is not None else ~question.nowhere()
    rejected: list[Rejection] = []
    for code, check in CHECKS:
        if not left.any():
            break
        refused, says = check(question)
        hit = np.flatnonzero(left & refused).tolist()
        left[hit] = False
        rejected += [Rejection(snapshot.hosts[host].id, code, says(host)) for host in hit]
    unknown = {name for name in request.hosts or () if snapshot.index(name) is None}
    rejected += [Rejection(name, "host.unknown", "there is no host of this name") for name in unknown]
    return np.flatnonzero(left).tolist(), tuple(sorted(rejected, key=lambda one: one.host))
