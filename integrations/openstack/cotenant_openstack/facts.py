"""Rows of OpenStack's listings as facts of hosts and instances; no I/O."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from advisor.domain.flavors import cpu_shares, described
from advisor.domain.rules import HAS, NEEDS, NONE, SOFT_AFFINITY, SOFT_ANTI_AFFINITY
from advisor.inventories.reading import STOPPED_LOAD, CpuShares, Facts
from cotenant_openstack.listings import Row
from profiler.host_kinds import HostKind
from profiler.observed import (
    AFFINITY_LABEL,
    ANTI_AFFINITY_LABEL,
    ANTI_AFFINITY_MOST_LABEL,
    MAX_CPUS,
    NEVER_MOVE_LABEL,
    REQUIRE_LABEL,
    NetworkSettings,
)

KINDS: Mapping[str, HostKind] = {"QEMU": "kvm", "KVM": "kvm", "XEN": "xen", "LXC": "lxc"}  # nova's hypervisor_type
STOPPED = (3, 4, 6, 7)  # nova's power states paused, shutdown, crashed, suspended: the server holds its place only
OWN_LABELS = frozenset(
    {
        "source", "render", "zone", "aggregate.", "metadata.", "disabled_reason", "name", "domain", "project",
        "flavor_name", f"{REQUIRE_LABEL}zone", f"{REQUIRE_LABEL}metadata.", HAS, NEEDS, "trait.",
        f"{REQUIRE_LABEL}trait.", f"{NONE}trait.",
    }
)  # fmt: skip
LABEL_LENGTH = 255
TRAIT = re.compile(r"[A-Z0-9_]{1,100}\Z")  # Placement takes up to 255 characters
ASKS_METADATA = "aggregate_instance_extra_specs:"  # of Nova's filter of aggregates by extra specs of flavors
OPERATORS = ("=", "!", "<", ">", "s=", "s!", "s<", "s>")  # with which such a value begins that compares: not read
MODELLED = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})  # resource classes that are sizes of their own here
ASKS_TRAIT = "trait:"  # before a trait that its host must, or must not have, as flags of CPUs are (os-traits)
ASKS_CLASS = "resources:"  # before the resource class of which a flavor asks some
PASSES_DEVICE = "pci_passthrough:alias"  # Nova migrates no server live that has such a device
GROUP_LABELS = frozenset(
    {AFFINITY_LABEL, ANTI_AFFINITY_LABEL, ANTI_AFFINITY_MOST_LABEL, SOFT_AFFINITY, SOFT_ANTI_AFFINITY}
)
SOFT_POLICIES = {"soft-affinity": SOFT_AFFINITY, "soft-anti-affinity": SOFT_ANTI_AFFINITY}
ASSUMED = "assumed"  # label: what is not reported and was chosen here


def zones_of(zones: Sequence[Row] | None, aggregates: Sequence[Row]) -> dict[str, str]:
    """The availability zone of each compute host, from the zones themselves or else from aggregates."""
    if zones is not None:
        return {host: str(zone["zoneName"]) for zone in zones for host in _names(zone.get("hosts"))}
    named = [aggregate for aggregate in aggregates if aggregate.get("availability_zone")]
    return {host: str(aggregate["availability_zone"]) for aggregate in named for host in _names(aggregate.get("hosts"))}


def _names(listed: object) -> list[str]:
    """The texts of a list or the keys of an object; none of anything else."""
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list | dict) else []


def group_labels(groups: Sequence[Row]) -> dict[str, dict[str, str]]:
    """Server → its labels, of server groups of Nova's four policies."""
    found: dict[str, dict[str, str]] = {}
    for group in groups:
        name, policy = str(group["id"]), group.get("policy")
        if policy == "anti-affinity":
            most = _most_on_a_host(group.get("rules"))
            labels = {ANTI_AFFINITY_LABEL: name} | ({ANTI_AFFINITY_MOST_LABEL: str(most)} if most > 1 else {})
        elif policy == "affinity":
            labels = {AFFINITY_LABEL: name}
        elif policy in SOFT_POLICIES:
            labels = {SOFT_POLICIES[policy]: name}
        else:
            continue
        for member in _names(group.get("members")):
            found[str(member)] = {**found.get(str(member), {}), **labels}
    return found


def _most_on_a_host(rules: object) -> int:
    most = rules.get("max_server_per_host", 1) if isinstance(rules, Mapping) else 1
    return int(most) if isinstance(most, int | str) and str(most).isdecimal() else 1


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
    traits: Iterable[str] = (),
) -> Facts:
    """A hypervisor of one of `KINDS` as facts of a Host."""
    name, kind = str(row["hypervisor_hostname"]), KINDS[_type(row)]
    service = row.get("service") or {}
    host = str(service.get("host", name))
    labels = {"source": source, "render": "openstack"}
    if host in zones:
        labels["zone"] = zones[host]
    labels |= {
        f"aggregate.{aggregate['name']}": "true" for aggregate in aggregates if host in _names(aggregate.get("hosts"))
    }
    labels |= {
        f"metadata.{key}.{value.strip()}": "true"
        for aggregate in aggregates
        if host in _names(aggregate.get("hosts"))
        for key, values in (aggregate.get("metadata") or {}).items()
        if key != "availability_zone"
        for value in str(values).split(",")  # as Nova reads several values
    }
    labels |= {f"trait.{trait}": "true" for trait in traits}
    promises = inventories or {}
    labels |= {f"{HAS}{name}": f"{_promised(promises[name]):g}" for name in sorted(counted([promises]))}
    reason = _disabled(row, service)
    if reason:
        labels["disabled_reason"] = reason
    cpus = _cpus(row, inventories)
    if cpus.get("dedicated_cpus"):
        labels[ASSUMED] = "dedicated_cpus"  # Nova reports how many there are, and not which
    facts = {
        "id": name,
        "kind": kind,
        **cpus,
        "memory_mb": float(row["memory_mb"]),
        "enabled": not reason,
        "labels": _labels(labels),
    }
    return {**facts, **_overcommit(facts, inventories)}


def instance_facts(
    row: Row,
    *,
    source: str,
    current_specs: Mapping[str, Mapping[str, str]],
    groups: Mapping[str, Mapping[str, str]],
    zoned: bool = False,
    cpu_policies: Mapping[str, str] | None = None,
    classes: Collection[str] = (),
    traits: Collection[str] = (),
) -> Facts:
    """A server as facts of an Instance; `current_specs` are the extra specs of flavors by name, as they are now, and
    `groups` are servers with their `group_labels`, `cpu_policies` images with theirs, None = not known. `classes` are
    the resource classes that hosts have and that are counted, `traits` those of
    which hosts are known. With `zoned` a server stays in its availability zone:
    Nova does not say here whether its user asked for that zone.

    Nova keeps a copy of the flavor as it was when the server was made: its limits are those that hold. What stands
    under `cotenant:` is about Cotenant alone, so the flavor as it is now counts.
    """
    flavor = row["flavor"]
    name = str(flavor.get("original_name", ""))
    image = row.get("image")
    policy = (cpu_policies or {}).get(str(image.get("id"))) if isinstance(image, Mapping) else None
    specs = {**({"hw:cpu_policy": policy} if policy else {}), **(flavor.get("extra_specs") or {})}
    specs |= {key: value for key, value in current_specs.get(name, {}).items() if key.startswith("cotenant:")}
    metadata = row.get("metadata") or {}
    if "cotenant:workload" in metadata:  # the only word of a tenant's that counts: what it runs, not what it may claim
        specs["cotenant:workload"] = metadata["cotenant:workload"]
    vcpus = int(flavor["vcpus"])
    from_specs = {**({} if cpu_policies is None else {"dedicated_vcpus": 0}), **described(specs, vcpus)}
    settings = from_specs.pop("isolation", {})
    shares = cpu_shares(specs)
    settings |= {} if shares is None else {"weight": CpuShares(shares)}
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
        **groups.get(str(row["id"]), {}),
    }
    if zoned:
        labels[f"{REQUIRE_LABEL}zone"] = str(row.get("OS-EXT-AZ:availability_zone") or "")
    labels |= {
        f"{REQUIRE_LABEL}metadata.{key.removeprefix(ASKS_METADATA)}.{value}": "true"
        for key, value in specs.items()
        if key.startswith(ASKS_METADATA) and value and not str(value).startswith(OPERATORS)
    }
    labels |= {f"{NEEDS}{name}": str(specs.get(f"{ASKS_CLASS}{name}") or "") for name in classes}
    for trait in traits:
        prefix = {"required": REQUIRE_LABEL, "forbidden": NONE}.get(str(specs.get(f"{ASKS_TRAIT}{trait}")))
        labels |= {f"{prefix}trait.{trait}": "true"} if prefix else {}
    if specs.get(PASSES_DEVICE):
        labels[NEVER_MOVE_LABEL] = "true"
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


def asked_traits(specs: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The traits that these extra specs of flavors name."""
    named = {str(key).removeprefix(ASKS_TRAIT) for one in specs for key in one if str(key).startswith(ASKS_TRAIT)}
    return frozenset(name for name in named if TRAIT.match(name))


def counted(inventories: Iterable[Mapping[str, Row]]) -> frozenset[str]:
    """Resource classes of Placement that are counted: all that are no sizes of their own."""
    return frozenset(name for promises in inventories for name in promises) - MODELLED


def _disabled(row: Row, service: Mapping[str, Any]) -> str:
    """Why nothing may be placed there, or nothing."""
    if row.get("status") == "disabled":
        return f"disabled: {service.get('disabled_reason') or 'no reason given'}"
    return "" if row.get("state") == "up" else "its compute service is down"


def _cpus(row: Row, inventories: Mapping[str, Row] | None) -> dict[str, Any]:
    """The CPUs of a hypervisor, and which of them are dedicated, as far as that is known.

    `vcpus` counts the shared ones only where cpu_dedicated_set is configured, 0 where all are dedicated (Nova's
    cpu-topologies.rst); then all are reported by the topology, or else by Placement. Of PCPUs only the number is known:
    the last ones in order of cores are taken to be them, and the first ones to be those that serve no guest.
    """
    shared, topology = int(row["vcpus"]), _topology(row.get("cpu_info"))
    threads = topology.get("threads", 0)
    known = {"threads_per_core": threads} if 1 <= threads <= 16 else {}
    promises = inventories or {}
    totals = {name: int(promises[name]["total"]) for name in ("PCPU", "VCPU") if name in promises}
    dedicated = totals.get("PCPU", 0)
    if shared > 0 and not dedicated:
        return {"pcpus": shared, **known, **({} if inventories is None else {"dedicated_cpus": ()})}
    parts = ("cells", "sockets", "cores", "threads")
    whole = math.prod(topology.get(name, 1) for name in parts) if "cores" in topology else 0
    pcpus = max(whole, sum(totals.values()), shared)
    if not pcpus:
        raise ValueError("it has no shared CPUs, and neither its topology nor Placement shows dedicated ones")
    usable = dedicated - int(promises["PCPU"]["reserved"]) if dedicated else pcpus - shared
    kept = max(pcpus - usable - totals.get("VCPU", shared), 0)  # for the host itself, or reserved
    cores = pcpus // threads if known and pcpus % threads == 0 else pcpus
    in_order = sorted(range(pcpus), key=lambda cpu: (cpu % cores, cpu))
    return {
        "pcpus": pcpus,
        **known,
        "isolated_cpus": tuple(sorted(in_order[:kept])),
        "dedicated_cpus": tuple(sorted(in_order[pcpus - usable :])),
    }


def _topology(cpu_info: object) -> dict[str, int]:
    """Numbers of cells, sockets, cores and threads, each of the one before; as JSON in a text before Nova 2.28."""
    if isinstance(cpu_info, str):
        try:
            cpu_info = json.loads(cpu_info)
        except (ValueError, RecursionError):
            return {}
    topology = cpu_info.get("topology") if isinstance(cpu_info, Mapping) else None
    if not isinstance(topology, Mapping):
        return {}
    return {name: value for name, value in topology.items() if type(value) is int and 1 <= value <= MAX_CPUS}


def _overcommit(facts: Facts, inventories: Mapping[str, Row] | None) -> Facts:
    """What Placement promises over the capacity; reserved amounts are not promised, and dedicated CPUs only to VMs that
    asks for such."""
    if not inventories:
        return {}
    overcommit = {}
    shared = facts["pcpus"] - len(facts.get("isolated_cpus", ())) - len(facts.get("dedicated_cpus", ()))
    promised = _promised(inventories["VCPU"]) if "VCPU" in inventories else 0.0
    if shared > 0 and promised > 0:
        overcommit["cpu_overcommit"] = promised / shared
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
