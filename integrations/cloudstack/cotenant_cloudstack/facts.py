"""Rows of CloudStack's listings as facts of hosts and instances; no I/O.

Fields by HostResponse.java, UserVmResponse.java and ServiceOfferingResponse.java. Ids are CloudStack's uuids, which its
own calls take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.domain.flavors import described
from advisor.inventories.reading import Facts, as_cpus, as_number, clean_labels
from cotenant_cloudstack.calls import Row
from cotenant_cloudstack.rules import TAG, Rules, tags_of
from profiler.host_kinds import HostKind
from profiler.observed import NetworkSettings

KINDS: Mapping[str, HostKind] = {"KVM": "kvm", "XenServer": "xen", "LXC": "lxc"}
OWN_LABELS = frozenset(
    {"source", "render", "zone", "pod", "cluster", "tag.", "disabled_reason", "name", "project", "offering", "domain"}
)


def host_facts(row: Row, source: str, rules: Rules) -> Facts:
    """A host as facts of a Host; ValueError where it is of a kind that Cotenant does not model."""
    kind = KINDS.get(str(row.get("hypervisor")))
    if kind is None:
        raise ValueError(f"its hypervisor is {row.get('hypervisor')}, which Cotenant does not model")
    cpus, memory = as_cpus(row["cpunumber"], "cpunumber"), as_number(row["memorytotal"], "memorytotal", least=1)
    mhz = as_number(row.get("cpuspeed") or 0, "cpuspeed")  # not every host reports it
    reason = _closed(row)
    labels = {
        "source": source,
        "render": "cloudstack",
        "name": row.get("name"),
        "zone": row.get("zonename"),
        "pod": row.get("podname"),
        "cluster": row.get("clusterid"),
        "disabled_reason": reason,
        **{f"{TAG}{tag}": "true" for tag in tags_of(row)},
        **rules.of_host(row),
    }
    facts: dict[str, Any] = {
        "id": str(row["id"]),
        "kind": kind,
        "pcpus": cpus,
        **({"cpu_mhz": mhz} if mhz else {}),
        "memory_mb": memory / 2**20,
        "enabled": not reason,
        "labels": clean_labels(labels),
    }
    for name, promised, physical in (
        ("cpu_overcommit", row.get("cpuwithoverprovisioning"), cpus * mhz),
        ("memory_overcommit", row.get("memorywithoverprovisioning"), memory),
    ):
        if promised and physical > 0 and float(promised) > 0:
            facts[name] = float(promised) / physical
    return facts


def instance_facts(row: Row, source: str, offering: Row, speeds: Mapping[Any, Any], rules: Rules) -> Facts:
    """A virtual machine as facts of an Instance; `speeds` are the clock rates of hosts in MHz, by uuid.

    What it runs may stand in its tag `cotenant.workload`; what it may claim is for its offering's details to say.
    """
    vcpus, host = as_cpus(row["cpunumber"], "cpunumber"), row.get("hostid")
    details = offering.get("serviceofferingdetails") or {}
    specs = {str(name).replace("cotenant.", "cotenant:", 1): str(value) for name, value in details.items()}
    tags = {str(tag.get("key")): str(tag.get("value")) for tag in row.get("tags") or ()}
    if "cotenant.workload" in tags:
        specs["cotenant:workload"] = tags["cotenant.workload"]
    from_details = {**described(specs, vcpus)}
    settings = dict(from_details.pop("isolation", {}))
    if isinstance(settings.get("network"), Mapping):
        settings["network"] = NetworkSettings(**settings["network"])
    if offering.get("limitcpuuse") and speeds.get(host) and row.get("cpuspeed"):
        settings["cap_percent"] = 100.0 * vcpus * min(1.0, float(row["cpuspeed"]) / float(speeds[host]))
    if float(offering.get("networkrate") or 0) > 0:
        settings["network"] = NetworkSettings("dedicated", float(offering["networkrate"]))
    labels = {
        "source": source,
        "name": row.get("name"),
        "project": row.get("project") or row.get("account"),
        "offering": row.get("serviceofferingname"),
        "domain": row.get("instancename"),  # as the hypervisor knows it
        **rules.of_machine(row, offering),
    }
    return {
        "id": str(row["id"]),
        "host": None if host is None else str(host),
        "vcpus": vcpus,
        "memory_mb": as_number(row["memory"], "memory"),
        "settings": settings,
        "labels": clean_labels(labels),
        **from_details,
    }


def _closed(row: Row) -> str:
    """Why nothing may be placed there, or nothing."""
    if row.get("state") != "Up":
        return f"its agent is {row.get('state')}"
    return "" if row.get("resourcestate") == "Enabled" else f"it is {row.get('resourcestate')}"
