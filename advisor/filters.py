"""Which hosts can take an instance at all, and why not: one small function per reason, each with a stable code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.domain import Host, Instance, PlacementRequest, Rejection
from advisor.snapshot import ClusterSnapshot

Check = Callable[[ClusterSnapshot, int, PlacementRequest], str | None]


def others_on(snapshot: ClusterSnapshot, host: int, request: PlacementRequest) -> list[Instance]:
    """Who is on a host beside the instance that is asked about (it may sit there already)."""
    return [one for one in snapshot.residents[host] if one.id != request.instance.id]


def _enabled(snapshot: ClusterSnapshot, host: int, _: PlacementRequest) -> str | None:
    return None if snapshot.hosts[host].enabled else "the host is disabled"


def _kind(snapshot: ClusterSnapshot, host: int, request: PlacementRequest) -> str | None:
    wanted, has = request.constraints.kind, snapshot.hosts[host].kind
    return None if wanted in {None, has} else f"needs a {wanted} host, this one is {has}"


def _labels(snapshot: ClusterSnapshot, host: int, request: PlacementRequest) -> str | None:
    labels = snapshot.hosts[host].labels
    for name, value in sorted(request.constraints.labels.items()):
        if labels.get(name) != value:
            return f"needs label {name}={value}, has {labels.get(name, 'none')}"
    return None


def _exclude(snapshot: ClusterSnapshot, host: int, request: PlacementRequest) -> str | None:
    return "the request excludes this host" if snapshot.hosts[host].id in request.constraints.exclude else None


def _affinity(snapshot: ClusterSnapshot, host: int, request: PlacementRequest) -> str | None:
    there = {one.id for one in others_on(snapshot, host, request)}
    missing = [name for name in request.constraints.affinity if name not in there]
    return f"{missing[0]} is not on this host" if missing else None


def _anti_affinity(snapshot: ClusterSnapshot, host: int, request: PlacementRequest) -> str | None:
    there = {one.id for one in others_on(snapshot, host, request)}
    present = [name for name in request.constraints.anti_affinity if name in there]
    return f"{present[0]} is on this host" if present else None


def _vcpus(snapshot: ClusterSnapshot, host: int, request: PlacementRequest) -> str | None:
    has, needs = snapshot.hosts[host], request.instance.vcpus
    if needs > has.pcpus:
        return f"needs {needs} vCPUs, the host has {has.pcpus} pCPUs"
    free = has.pcpus * has.cpu_overcommit - sum(one.vcpus for one in others_on(snapshot, host, request))
    return None if needs <= free else f"needs {needs} vCPUs, {max(free, 0):g} free at overcommit {has.cpu_overcommit:g}"


def _memory(snapshot: ClusterSnapshot, host: int, request: PlacementRequest) -> str | None:
    has, needs = snapshot.hosts[host], request.instance.memory_mb
    free = has.memory_mb * has.memory_overcommit - sum(one.memory_mb for one in others_on(snapshot, host, request))
    return None if needs <= free else f"needs {needs:g} MB, {max(free, 0):g} MB free"


def _disk(snapshot: ClusterSnapshot, host: int, request: PlacementRequest) -> str | None:
    size, needs = snapshot.hosts[host].disk_gb, request.instance.disk_gb
    if size is None:
        return None  # a host that reports no disk size is not judged by it
    free = size - sum(one.disk_gb for one in others_on(snapshot, host, request))
    return None if needs <= free else f"needs {needs:g} GB of disk, {max(free, 0):g} GB free"


def _pins(snapshot: ClusterSnapshot, host: int, request: PlacementRequest) -> str | None:
    pinning = request.instance.settings.pinning
    highest = max((cpu for cpus in pinning.cpus for cpu in cpus), default=0) if pinning else 0
    has: Host = snapshot.hosts[host]
    return None if highest < has.pcpus else f"pinned to pCPU {highest}, the host has 0-{has.pcpus - 1}"


CHECKS: tuple[tuple[str, Check], ...] = (
    ("host.disabled", _enabled),
    ("constraint.kind", _kind),
    ("constraint.label", _labels),
    ("constraint.exclude", _exclude),
    ("constraint.affinity", _affinity),
    ("constraint.anti_affinity", _anti_affinity),
    ("capacity.vcpus", _vcpus),
    ("capacity.memory", _memory),
    ("capacity.disk", _disk),
    ("capacity.pinning", _pins),
)
OTHER_CODES = ("host.unknown", "host.no_data", "limit.newcomer", "limit.neighbour")
CODES = (*(code for code, _ in CHECKS), *OTHER_CODES)


def apply(
    snapshot: ClusterSnapshot, request: PlacementRequest, *, fresh_s: float
) -> tuple[list[int], tuple[Rejection, ...]]:
    """Positions of the hosts that can take the instance, and a reason for every other host that was in question.

    When the request names hosts, only those are in question (rule 5); a named host that does not exist is rejected.
    """
    kept: list[int] = []
    rejected: list[Rejection] = []
    names = None if request.hosts is None else set(request.hosts)
    for position, host in enumerate(snapshot.hosts):
        if names is not None and host.id not in names:
            continue
        reason = _first_reason(snapshot, position, request, fresh_s)
        if reason is None:
            kept.append(position)
        else:
            rejected.append(Rejection(host.id, *reason))
    known = {host.id for host in snapshot.hosts}
    rejected += [
        Rejection(name, "host.unknown", "there is no host of this name") for name in _unknown(request.hosts, known)
    ]
    return kept, tuple(sorted(rejected, key=lambda one: one.host))


def _unknown(names: Sequence[str] | None, known: set[str]) -> list[str]:
    return sorted(set(names or ()) - known)


def _first_reason(
    snapshot: ClusterSnapshot, host: int, request: PlacementRequest, fresh_s: float
) -> tuple[str, str] | None:
    for code, check in CHECKS:
        reason = check(snapshot, host, request)
        if reason is not None:
            return code, reason
    age = snapshot.age_s[host]
    if age > fresh_s and not request.constraints.allow_stale:
        when = "it was never seen" if age == float("inf") else f"it was last seen {age:.0f} s ago"
        return "host.no_data", f"no fresh data: {when}, at most {fresh_s:.0f} s are allowed"
    return None
