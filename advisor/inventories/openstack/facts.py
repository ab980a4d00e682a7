"""Rows of OpenStack's listings as facts of hosts and instances; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from advisor.inventories.openstack.flavors import described
from advisor.inventories.openstack.listings import Row
from advisor.inventories.reading import STOPPED_LOAD, Facts
from profiler.host_kinds import HostKind
from profiler.observed import ANTI_AFFINITY_LABEL, NetworkSettings

KINDS: Mapping[str, HostKind] = {"QEMU": "kvm", "KVM": "kvm", "XEN": "xen", "LXC": "lxc"}  # nova's hypervisor_type
STOPPED = (3, 4, 6, 7)  # nova's power states paused, shutdown, crashed, suspended: the server holds its place only
OWN_LABELS = frozenset(
    {"source", "render", "zone", "aggregate.", "disabled_reason", "name", "domain", "project", "flavor_name"}
)
LABEL_LENGTH = 255


def zones_of(zones: Sequence[Row] | None, aggregates: Sequence[Row]) -> dict[str, str]:
    """The availability zone of each compute host, from the zones themselves or else from aggregates."""
    if zones is not None:
        return {host: str(zone["zoneName"]) for zone in zones for host in zone.get("hosts") or {}}
    named = [aggregate for aggregate in aggregates if aggregate.get("availability_zone")]
    return {host: str(aggregate["availability_zone"]) for aggregate in named for host in aggregate.get("hosts") or ()}


def anti_affinity_of(groups: Sequence[Row]) -> dict[str, str]:
    """Server → its group, of server groups of the policy anti-affinity that let one member run on a host."""
    apart = [
        group
        for group in groups
        if group.get("policy") == "anti-affinity" and (group.get("rules") or {}).get("max_server_per_host", 1) == 1
    ]
    return {str(member): str(group["id"]) for group in apart for member in group.get("members") or ()}


def not_modelled(row: Row) -> str:
    """Why a hypervisor, such as one of ironic or VMware, is left out; empty where it is taken."""
    if _type(row) in KINDS:
        return ""
    name = row.get("hypervisor_hostname")
    return f"hypervisor {name} is of type {row.get('hypervisor_type')}, which Cotenant does not model"


def _type(row: Row) -> str:
    return str(row.get("hypervisor_type")).upper()


def host_facts(
    row: Row,
    *,
    source: str,
    zones: Mapping[str, str],
    aggregates: Sequence[Row],
    inventories: Mapping[str, Row] | None,
) -> Facts:
    """A hypervisor of one of `KINDS` as facts of a Host."""
    name, kind = str(row["hypervisor_hostname"]), KINDS[_type(row)]
    service = row.get("service") or {}
    host = str(service.get("host", name))
    labels = {"source": source, "render": "openstack"}
    if host in zones:
        labels["zone"] = zones[host]
    labels |= {
        f"aggregate.{aggregate['name']}": "true" for aggregate in aggregates if host in (aggregate.get("hosts") or ())
    }
    reason = _disabled(row, service)
    if reason:
        labels["disabled_reason"] = reason
    facts = {
        "id": name,
        "kind": kind,
        "pcpus": int(row["vcpus"]),
        "memory_mb": float(row["memory_mb"]),
        "enabled": not reason,
        "labels": _labels(labels),
    }
    threads = _threads(row.get("cpu_info"))
    if threads:
        facts["threads_per_core"] = threads
    return {**facts, **_overcommit(facts, inventories)}


def instance_facts(
    row: Row, *, source: str, current_specs: Mapping[str, Mapping[str, str]], anti_affinity: Mapping[str, str]
) -> Facts:
    """A server as facts of an Instance; `current_specs` are the extra specs of flavors by name, as they are now, and
    `anti_affinity` are servers with their group.

    Nova keeps a copy of the flavor as it was when the server was made: its limits are those that hold. What stands
    under `cotenant:` is about Cotenant alone, so the flavor as it is now counts.
    """
    flavor = row["flavor"]
    name = str(flavor.get("original_name", ""))
    specs = dict(flavor.get("extra_specs") or {})
    specs |= {key: value for key, value in current_specs.get(name, {}).items() if key.startswith("cotenant:")}
    metadata = row.get("metadata") or {}
    if "cotenant:workload" in metadata:  # the only word of a tenant's that counts: what it runs, not what it may claim
        specs["cotenant:workload"] = metadata["cotenant:workload"]
    vcpus = int(flavor["vcpus"])
    from_specs = described(specs, vcpus)
    settings = from_specs.pop("isolation", {})
    if "network" in settings:
        settings["network"] = NetworkSettings(**settings["network"])
    if row.get("OS-EXT-STS:power_state") in STOPPED:
        from_specs["load"] = STOPPED_LOAD
    labels = {
        "source": source,
        "name": str(row.get("name", "")),
        "domain": str(row.get("OS-EXT-SRV-ATTR:instance_name") or ""),  # as libvirt and its exporters know it
        "project": str(row.get("tenant_id", "")),
        "flavor_name": name,
        ANTI_AFFINITY_LABEL: anti_affinity.get(str(row["id"]), ""),
    }
    return {
        "id": str(row["id"]),
        "host": row.get("OS-EXT-SRV-ATTR:hypervisor_hostname") or row.get("OS-EXT-SRV-ATTR:host"),
        "vcpus": vcpus,
        "memory_mb": float(flavor["ram"]),
        "disk_gb": float(flavor.get("disk") or 0) if row.get("image") else 0.0,  # else it starts from a volume
        "settings": settings,
        "labels": _labels(labels),
        **from_specs,
    }


def _disabled(row: Row, service: Mapping[str, Any]) -> str:
    """Why nothing may be placed there, or nothing."""
    if row.get("status") == "disabled":
        return f"disabled: {service.get('disabled_reason') or 'no reason given'}"
    return "" if row.get("state") == "up" else "its compute service is down"


def _threads(cpu_info: object) -> int | None:
    topology = cpu_info.get("topology") if isinstance(cpu_info, Mapping) else None
    threads = topology.get("threads") if isinstance(topology, Mapping) else None
    return threads if isinstance(threads, int) and 1 <= threads <= 16 else None


def _overcommit(facts: Facts, inventories: Mapping[str, Row] | None) -> Facts:
    """What Placement promises over what there is; reserved amounts are not promised, dedicated CPUs once each."""
    if not inventories:
        return {}
    overcommit = {}
    cpus = [_promised(inventories[name]) for name in ("VCPU", "PCPU") if name in inventories]
    if sum(cpus) > 0 and facts["pcpus"] > 0:
        overcommit["cpu_overcommit"] = sum(cpus) / facts["pcpus"]
    if "MEMORY_MB" in inventories and facts["memory_mb"] > 0 and _promised(inventories["MEMORY_MB"]) > 0:
        overcommit["memory_overcommit"] = _promised(inventories["MEMORY_MB"]) / facts["memory_mb"]
    return overcommit


def _promised(inventory: Row) -> float:
    return (float(inventory["total"]) - float(inventory["reserved"])) * float(inventory["allocation_ratio"])


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Names and values that may stand in a label: printable, and not longer than 255 characters."""
    return {_printable(name): _printable(value) for name, value in labels.items() if value}


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:LABEL_LENGTH]


def changed_or_gone(rows: Iterable[Row]) -> tuple[list[Row], frozenset[str], frozenset[str]]:
    """Servers that are on a host, ids of those that are on none or deleted, and ids of those in a cell that is down."""
    placed: list[Row] = []
    gone: set[str] = set()
    unclear: set[str] = set()
    for row in rows:
        if not row.get("id"):
            continue
        if row.get("status") == "UNKNOWN":
            unclear.add(str(row["id"]))
        elif row.get("status") == "DELETED" or not row.get("OS-EXT-SRV-ATTR:host"):
            gone.add(str(row["id"]))
        else:
            placed.append(row)
    return placed, frozenset(gone), frozenset(unclear)
