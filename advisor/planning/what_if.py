"""Clouds that are only imagined: other hosts, other overcommit, other pinning, another model; beside the one of now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from math import isfinite

from advisor.domain import Host, Instance, Inventory, Pinning, WhatIf
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot


def imagine(
    snapshot: ClusterSnapshot, what_if: WhatIf
) -> tuple[ClusterSnapshot, tuple[Instance, ...], tuple[str, ...]]:
    """The imagined cloud, those whose host is gone and who must be placed anew, and notes.

    A host that is put counts as seen now. Pins that the new hosts have no pCPUs for are only there where the pinning
    stays as it is, and were refused before.
    """
    hosts = {host.id: host for host in snapshot.hosts} | {host.id: host for host in what_if.hosts}
    hosts = {name: _promising(host, what_if) for name, host in hosts.items() if name not in set(what_if.remove)}
    residents = [one for there in snapshot.residents for one in there]
    staying = [one for one in residents if one.host in hosts]
    homeless = tuple(
        replace(one, host=None, settings=replace(one.settings, pinning=None))
        for one in residents
        if one.host not in hosts
    )
    notes = []
    if what_if.pinning == "unpinned":
        staying = [_pinned(one, None) for one in staying]
    elif what_if.pinning == "own":
        staying, crowded = _with_own(hosts, staying)
        if crowded:
            notes.append(f"There are not enough pCPUs for everybody on {_listed(crowded)}: nobody has its own there.")
    if homeless:
        lose = "1 instance loses its" if len(homeless) == 1 else f"{len(homeless)} instances lose their"
        are = "is" if len(homeless) == 1 else "are"
        notes.append(f"{lose} host and {are} placed anew.")
    ages = dict(zip((host.id for host in snapshot.hosts), snapshot.age_s.tolist(), strict=True))
    ages |= {host.id: 0.0 for host in what_if.hosts}
    seen = {name: snapshot.taken_at - timedelta(seconds=age) for name, age in ages.items() if isfinite(age)}
    inventory = Inventory(tuple(hosts.values()), tuple(staying), snapshot.workloads)
    cloud = ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=snapshot.taken_at)
    return cloud, homeless, (*notes, *_beyond(snapshot, cloud))


def _beyond(now: ClusterSnapshot, then: ClusterSnapshot) -> Iterator[str]:
    """Where those who stay were promised more than there would be, and are not now: they stay all the same."""
    was = {name: set(hosts) for name, hosts in _full(now)}
    for name, hosts in _full(then):
        new = [host for host in hosts if host not in was[name]]
        if new:
            yield f"More {name} than there would be is promised to those who are on {_listed(new)} now."


def _full(cloud: ClusterSnapshot) -> Iterator[tuple[str, list[str]]]:
    """The hosts of a cloud on which more is promised than may be, for each size."""
    for name, used, room in (
        ("CPU", cloud.used_vcpus, cloud.room_vcpus),
        ("memory", cloud.used_memory_mb, cloud.room_memory_mb),
        ("disk", cloud.used_disk_gb, cloud.room_disk_gb),
    ):
        over = used > with_slack(room)
        yield name, [host.id for host, full in zip(cloud.hosts, over.tolist(), strict=True) if full]


def _promising(host: Host, what_if: WhatIf) -> Host:
    cpu, memory = what_if.cpu_overcommit, what_if.memory_overcommit
    return replace(
        host,
        cpu_overcommit=host.cpu_overcommit if cpu is None else cpu,
        memory_overcommit=host.memory_overcommit if memory is None else memory,
    )


def _pinned(one: Instance, pinning: Pinning | None) -> Instance:
    return replace(one, settings=replace(one.settings, pinning=pinning))


def _with_own(hosts: Mapping[str, Host], staying: Sequence[Instance]) -> tuple[list[Instance], list[str]]:
    """Everybody with pCPUs of its own, beside those of the driver domain, by id; and the hosts without enough."""
    by_host: dict[str, list[Instance]] = {}
    for one in sorted(staying, key=lambda one: one.id):
        by_host.setdefault(one.host or "", []).append(one)
    found: list[Instance] = []
    crowded: list[str] = []
    for name, there in by_host.items():
        host = hosts[name]
        drivers = set(host.driver_cpus) if len(host.driver_cpus) < host.pcpus else set()
        free = [cpu for cpu in range(host.pcpus) if cpu not in drivers]
        if sum(one.vcpus for one in there) > len(free):
            crowded.append(name)
            found += [_pinned(one, None) for one in there]
            continue
        cpus = iter(free)
        found += [_pinned(one, Pinning(tuple((next(cpus),) for _ in range(one.vcpus)))) for one in there]
    return found, sorted(crowded)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
