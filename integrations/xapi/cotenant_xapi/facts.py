"""Records of XAPI's hosts and VMs as facts; no I/O.

Fields as the Xen API reference and the documentation of XenServer describe them; no XCP-ng or XenServer was run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from advisor.inventories.reading import Facts, as_cpus, as_number, clean_labels
from profiler.observed import MAX_WEIGHT, NetworkSettings, Pinning, check_id, parse_cpus

Record = Mapping[str, Any]
OWN_LABELS = frozenset({"source", "uuid", "name", "cpu_model", "xen", "product", "tag."})
PRESENT = frozenset({"Running", "Paused"})  # Halted and Suspended VMs are on no host
NOWHERE = "OpaqueRef:NULL"
_MBIT_PER_KBPS = 8 / 1000  # a VIF's limit is in kilobytes per second, whatever its name says (XenServer, "QoS")


def name_of(record: Record, *fields: str) -> str:
    """The first of these fields that is an id of the contract; ValueError where none is."""
    for field in fields:
        try:
            return check_id(str(record.get(field) or ""))
        except ValueError:
            continue
    raise ValueError(f"neither {' nor '.join(fields)} is an id")


def host_facts(host: Record, metrics: Record | None, links: Iterable[Record], name: str, source: str) -> Facts:
    """A host with its metrics and those of its links that have a carrier; ValueError says what is wrong."""
    if metrics is None or metrics.get("live") is not True:
        raise ValueError("it is not live; the host stays as it is")
    cpus, software = _mapping(host, "cpu_info"), _mapping(host, "software_version")
    facts: dict[str, Any] = {
        "id": name,
        "kind": "xen",
        "pcpus": as_cpus(cpus.get("cpu_count"), "cpu_count"),
        "memory_mb": as_number(metrics.get("memory_total"), "memory_total", least=1) / 2**20,
        "enabled": host.get("enabled") is True,
        "labels": clean_labels(
            {
                "source": source, "uuid": host.get("uuid"), "name": host.get("name_label"),
                "cpu_model": cpus.get("modelname"), "xen": software.get("xen"),
                "product": f"{software.get('product_brand', '')} {software.get('product_version', '')}".strip(),
            }
        ),
    }  # fmt: skip
    if cpus.get("speed"):
        facts["cpu_mhz"] = as_number(cpus["speed"], "speed")
    speeds = [as_number(link.get("speed") or 0, "speed") for link in links if link.get("carrier") is True]
    if max(speeds, default=0.0) > 0:
        facts["nic_mbit"] = max(speeds)
    return facts


def instance_facts(vm: Record, interfaces: Sequence[Record], name: str, host: str, source: str) -> Facts:
    """A VM with its interfaces; ValueError says what is wrong."""
    vcpus = as_cpus(vm.get("VCPUs_at_startup") or vm.get("VCPUs_max"), "VCPUs_at_startup")
    params = _mapping(vm, "VCPUs_params")
    cap, weight = (as_number(params.get(field) or 0, field) for field in ("cap", "weight"))
    tags = vm.get("tags")
    labels = {
        "source": source,
        "uuid": vm.get("uuid"),
        "name": vm.get("name_label"),
        **{f"tag.{tag}": "true" for tag in (tags if isinstance(tags, list) else ()) if tag},
    }
    return {
        "id": name,
        "host": host,
        "vcpus": vcpus,
        "memory_mb": as_number(vm.get("memory_dynamic_max") or vm.get("memory_static_max"), "memory") / 2**20,
        "settings": {
            "cap_percent": cap or None,
            "weight": int(weight) if 1 <= weight <= MAX_WEIGHT else None,
            "network": _network(interfaces),
            "pinning": Pinning.all_on(parse_cpus(str(params["mask"])), vcpus) if params.get("mask") else None,
        },
        "labels": clean_labels(labels),
    }


def _network(interfaces: Sequence[Record]) -> NetworkSettings | None:
    """All interfaces together; None where one of them is free."""
    rates = [
        as_number(_mapping(interface, "qos_algorithm_params").get("kbps") or 0, "kbps")
        if interface.get("qos_algorithm_type") == "ratelimit"
        else 0.0
        for interface in interfaces
    ]
    return NetworkSettings("dedicated", sum(rates) * _MBIT_PER_KBPS) if rates and min(rates) > 0 else None


def _mapping(record: Record, field: str) -> Record:
    value = record.get(field)
    return value if isinstance(value, Mapping) else {}
