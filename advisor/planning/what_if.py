"""Imagined clouds: other hosts, overcommit or pinning than the current cloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from math import isfinite

from advisor.domain import Host, Instance, Inventory, Pinning, WhatIf, listed, unpinned
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot, promised_vcpus


def imagine(
    snapshot: ClusterSnapshot, what_if: WhatIf
) -> tuple[ClusterSnapshot, tuple[Instance, ...], tuple[str, ...]]:
    """The imagined cloud, the instances whose host is gone, and notes.

    An added host counts as seen now. Pins fit their host: with unchanged pinning, validation has rejected those beyond
    its pCPUs.
    """
    hosts = {host.id: host for host in snapshot.hosts} | {host.id: host for host in what_if.hosts}
    hosts = {name: _promising(host, what_if) for name, host in hosts.items() if name not in set(what_if.remove)}
    residents = [instance for residents_here in snapshot.residents for instance in residents_here]
    staying = [instance for instance in residents if instance.host in hosts]
    homeless = tuple(replace(unpinned(instance), host=None) for instance in residents if instance.host not in hosts)
    notes = []
    if what_if.pinning == "unpinned":
        staying = [_pinned(instance, None) for instance in staying]
    elif what_if.pinning == "own":
        staying, crowded = _with_own(hosts, staying)
        if crowded:
            notes.append(f"There are not enough pCPUs on {listed(crowded)}: instances there have none of their own.")
    if homeless:
        lose = "1 instance loses its" if len(homeless) == 1 else f"{len(homeless)} instances lose their"
        are = "is" if len(homeless) == 1 else "are"
        notes.append(f"{lose} host and {are} placed anew.")
    ages = dict(zip((host.id for host in snapshot.hosts), snapshot.age_s.tolist(), strict=True))
    ages |= {host.id: 0.0 for host in what_if.hosts}
    seen = {name: snapshot.taken_at - timedelta(seconds=age) for name, age in ages.items() if isfinite(age)}
    inventory = Inventory(tuple(hosts.values()), tuple(staying), snapshot.workloads)
    patience = dict(zip((host.id for host in snapshot.hosts), snapshot.names.patience.tolist(), strict=True))
    cloud = ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=snapshot.taken_at, patience=patience)
    return cloud, homeless, (*notes, *_beyond(snapshot, cloud))


def _beyond(now: ClusterSnapshot, then: ClusterSnapshot) -> Iterator[str]:
    """Notes about hosts on which remaining instances exceed the imagined room but not the current one."""
    was = {name: set(hosts) for name, hosts in _full(now)}
    for name, hosts in _full(then):
        new = [host for host in hosts if host not in was[name]]
        if new:
            yield f"The instances on {listed(new)} are promised more {name} than there would be."


def _full(cloud: ClusterSnapshot) -> Iterator[tuple[str, list[str]]]:
    """The overcommitted hosts of a cloud for each resource."""
    for name, used, room in (
        ("CPU", cloud.used_vcpus, cloud.room_vcpus),
        ("dedicated CPU", cloud.used_own, cloud.room_own),
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


def _pinned(instance: Instance, pinning: Pinning | None) -> Instance:
    return replace(instance, settings=replace(instance.settings, pinning=pinning))


def _with_own(hosts: Mapping[str, Host], staying: Sequence[Instance]) -> tuple[list[Instance], list[str]]:
    """Instances with pCPUs of their own beside those of the driver domain, by id; and the hosts with too few.

    Those with dedicated vCPUs have them without a pinning.
    """
    by_host: dict[str, list[Instance]] = {}
    for instance in sorted(staying, key=lambda instance: instance.id):
        by_host.setdefault(instance.host or "", []).append(instance)
    pinned: list[Instance] = []
    too_small: list[str] = []
    for name, residents in by_host.items():
        host = hosts[name]
        drivers = set(host.driver_cpus) if len(host.driver_cpus) < host.pcpus else set()
        free = [cpu for cpu in host.shared_cpus if cpu not in drivers]
        if sum(promised_vcpus(host, instance) for instance in residents) > len(free):
            too_small.append(name)
            pinned += [_pinned(instance, None) for instance in residents]
            continue
        cpus = iter(free)
        pinned += [
            _pinned(instance, Pinning(tuple((next(cpus),) for _ in range(instance.vcpus))))
            if not instance.dedicated_vcpus
            else instance
            for instance in residents
        ]
    return pinned, sorted(too_small)
