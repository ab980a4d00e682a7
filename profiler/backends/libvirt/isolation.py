"""Isolation settings of a domain, from its live XML and its scheduler parameters; read-only."""

from __future__ import annotations

from profiler.backends.libvirt.connection import LibvirtConnection
from profiler.backends.linux import or_none
from profiler.backends.lxc.control_groups import V1_DEFAULT_SHARES, V2_DEFAULT_WEIGHT, find_mounts
from profiler.backends.source import HostSource
from profiler.observed import (
    DEFAULT_WEIGHT,
    MAX_WEIGHT,
    NO_CAP_PERCENT,
    NO_RATE_MBIT,
    IsolationSettings,
    NetworkSettings,
    Pinning,
    real_limit,
)
from profiler.parse.libvirt import Bandwidth, DomainDescription, DomainRecord, parse_domain, scheduler_number

_MBIT = 8 / 1000  # of libvirt's kilobytes per second: virNetDevBandwidthSet hands them to tc as kbps, 1000 bytes each


def xml_key(record: DomainRecord) -> str:
    """The key of a domain's XML in recordings."""
    return f"libvirt xml {record.uuid}"


def read_settings(source: HostSource, connection: LibvirtConnection, record: DomainRecord) -> IsolationSettings:
    """The settings of one domain; one that cannot be read is None."""
    key = xml_key(record)
    xml = or_none(source.value, key, lambda: connection.xml(record.uuid))
    described = or_none(parse_domain, xml, key) if isinstance(xml, str) else None
    parameters = or_none(source.value, f"libvirt scheduler {record.uuid}", lambda: connection.scheduler(record.uuid))
    return IsolationSettings(
        pinning=pinning(described) if described else None,
        cap_percent=cap_percent(parameters, described.vcpus) if described else None,
        weight=_weight(source, parameters),
        network=network(described.bandwidths) if described else None,
        disk_limit_mb_s=disk_limit_mb_s(described.disk_limits) if described else None,
    )


def pinning(described: DomainDescription) -> Pinning | None:
    """Which pCPUs each vCPU may use; None where none is pinned. An unpinned one beside pinned ones may use any."""
    return Pinning(described.pins) if any(described.pins) else None


def cap_percent(parameters: object, vcpus: int) -> float | None:
    """The lower of two limits: the quotas of all vCPUs together, and the quota of the whole domain."""
    caps: list[float] = []
    for scope, times in (("vcpu", vcpus), ("global", 1)):
        quota = scheduler_number(parameters, f"{scope}_quota")
        period = scheduler_number(parameters, f"{scope}_period")
        if quota is not None and period is not None:
            caps.append(100.0 * times * quota / period)
    return real_limit(min(caps, default=None), NO_CAP_PERCENT)


def _weight(source: HostSource, parameters: object) -> int | None:
    """cpu_shares on Xen's scale: libvirt returns cpu.shares of version 1, cpu.weight of version 2, unchanged."""
    shares = scheduler_number(parameters, "cpu_shares")
    mounts = or_none(find_mounts, source)
    if shares is None or mounts is None:
        return None
    default = V1_DEFAULT_SHARES if "cpu" in mounts else V2_DEFAULT_WEIGHT
    return max(1, min(MAX_WEIGHT, round(shares * DEFAULT_WEIGHT / default)))


def disk_limit_mb_s(limits: tuple[int | None, ...]) -> float | None:
    """The limits of all disks together; None where one of them has no limit, for then the instance has none."""
    known = [limit for limit in limits if limit is not None]
    return sum(known) / 1e6 if known and len(known) == len(limits) else None


def network(bandwidths: tuple[Bandwidth | None, ...]) -> NetworkSettings | None:
    """The limits of all interfaces together; None where one of them has no limit, for then the instance has none."""
    limits = [
        limit
        for limit in bandwidths
        if limit is not None and real_limit(limit.average * _MBIT, NO_RATE_MBIT) is not None
    ]
    if not limits or len(limits) < len(bandwidths):
        return None
    rate = sum(limit.average for limit in limits) * _MBIT
    ceil = sum(max(limit.average, limit.peak or 0) for limit in limits) * _MBIT
    return NetworkSettings("shared", rate, ceil) if ceil > rate else NetworkSettings("dedicated", rate)
