"""Rows of /cluster/resources with the status of a node or the config of a guest, as facts; no I/O.

Fields as public clients of the API read them, and by qm.conf(5) and pct.conf(5), versions 8 and 9; no Proxmox was run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from advisor.domain.rules import ANY, LOCAL_STORAGE, NONE, PREFER
from advisor.inventories.reading import STOPPED_LOAD, Facts, as_cpus, as_number, clean_labels, whole_cpus
from profiler.observed import (
    AFFINITY_LABEL,
    ANTI_AFFINITY_LABEL,
    NEVER_MOVE_LABEL,
    REQUIRE_LABEL,
    NetworkSettings,
    Pinning,
    parse_cpus,
)

Row = Mapping[str, Any]
OWN_LABELS = frozenset(
    {
        "source",
        "render",
        "name",
        "pool",
        "tag.",
        "guest",
        "os",
        "kernel",
        "cpu_model",
        "smbios_uuid",
        LOCAL_STORAGE,
        "storage.",
        f"{REQUIRE_LABEL}storage.",
    }
)
STORAGE = "storage."  # label of hosts, before the name of a shared storage that not every node reaches
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}\Z")
RULE_LABELS = frozenset({AFFINITY_LABEL, ANTI_AFFINITY_LABEL, f"{ANY}id", f"{NONE}id", f"{PREFER}id"})
_PASSED = re.compile(r"(hostpci|usb)\d+\Z")  # a guest with such a device is not migrated while it runs
_MOUNTED = re.compile(r"(virtio|scsi|sata|ide|mp|efidisk|tpmstate)\d+\Z|rootfs\Z")
_NIC = re.compile(r"net\d+\Z")
_DISK = re.compile(r"(virtio|scsi|sata|ide)\d+\Z")
_MBIT_PER_MB = 8.0  # rate of a NIC is megabytes per second


def node_name(row: Row) -> str:
    """The node a row is of; ValueError where it has none that could stand in a path."""
    name = row.get("node")
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(f"its node {str(name)[:60]!r} is not the name of one")
    return name


def guest_id(row: Row) -> tuple[str, int]:
    """Which kind (`qemu` or `lxc`) and number a guest has; ValueError where that is none."""
    kind, number = str(row.get("type")), row.get("vmid")
    if kind not in {"qemu", "lxc"} or type(number) is not int or not 1 <= number <= 999_999_999:
        raise ValueError(f"{kind[:20]}/{str(number)[:20]} is not a guest")
    return kind, number


def host_facts(row: Row, status: Row, name: str, source: str) -> Facts:
    """A node by its row and its status; an empty status leaves out what only that reports."""
    if row.get("status") != "online":
        raise ValueError("it is offline; the host stays as it is")
    cpuinfo = status.get("cpuinfo")
    info: Row = cpuinfo if isinstance(cpuinfo, Mapping) else {}
    cpus, memory = as_cpus(info.get("cpus", row.get("maxcpu")), "cpus"), as_number(row.get("maxmem"), "maxmem")
    facts: dict[str, Any] = {
        "id": name,
        "kind": "kvm",
        "pcpus": cpus,
        "memory_mb": memory / 2**20,
        "enabled": True,
        "labels": clean_labels(
            {"source": source, "render": "proxmox", "cpu_model": info.get("model"), "kernel": status.get("kversion")}
        ),
    }
    if info.get("mhz"):
        facts["cpu_mhz"] = as_number(info["mhz"], "mhz")
    cores = info.get("cores")
    if type(cores) is int and 1 <= cores <= cpus and cpus % cores == 0:
        facts["threads_per_core"] = cpus // cores
    return facts


def instance_facts(
    row: Row,
    config: Row,
    name: str,
    host: str,
    source: str,
    *,
    node: Row,
    local: Collection[str] = (),
    partly: Collection[str] = (),
    rules: Mapping[str, str] | None = None,
) -> Facts:
    """A guest by its row, its config and the row of its node; ValueError says what is wrong.

    `local` are storages that no other node reaches, `partly` shared ones that some nodes do not reach,
    `rules` the labels that HA rules give it.
    """
    kind, number = guest_id(row)
    vcpus = _vcpus(row, config, kind, node)
    limit = as_number(config.get("cpulimit") or 0, "cpulimit")
    smbios = _options(config.get("smbios1"))
    tags = re.split(r"[;, ]+", str(row.get("tags") or ""))
    labels = {
        "source": source,
        "name": row.get("name") or config.get("name") or config.get("hostname"),
        "guest": f"{kind}/{number}",
        "pool": row.get("pool"),
        "os": config.get("ostype"),
        "smbios_uuid": smbios.get("uuid"),
        **{f"tag.{tag}": "true" for tag in tags if tag},
        **(rules or {}),
    }
    if any(_PASSED.match(key) and "spice" not in str(value) for key, value in config.items()):
        labels[NEVER_MOVE_LABEL] = "true"
    volumes = [str(value) for key, value in config.items() if _MOUNTED.match(str(key))]
    storages = {volume.partition(":")[0] for volume in volumes if "media=cdrom" not in volume}
    if storages & set(local):
        labels[LOCAL_STORAGE] = "true"
    labels |= {f"{REQUIRE_LABEL}{STORAGE}{name}": "true" for name in storages & set(partly)}
    facts: dict[str, Any] = {
        "id": name,
        "host": host,
        "vcpus": vcpus,
        "memory_mb": as_number(row.get("maxmem"), "maxmem") / 2**20,
        "disk_gb": as_number(row.get("maxdisk") or 0, "maxdisk") / 1e9,
        "settings": {
            "cap_percent": 100 * limit if limit else None,
            "network": _network(config),
            "disk_limit_mb_s": _disk_limit(config),
            "pinning": Pinning.all_on(parse_cpus(str(config["affinity"])), vcpus) if config.get("affinity") else None,
        },
        "labels": clean_labels(labels),
    }
    return facts if row.get("status") == "running" else {**facts, "load": STOPPED_LOAD}


def local_storages(rows: Iterable[Row]) -> frozenset[str]:
    """Storages by name that are not shared between nodes."""
    storages = [row for row in rows if row.get("type") == "storage" and isinstance(row.get("storage"), str)]
    return frozenset(str(row["storage"]) for row in storages if row.get("shared") == 0)


def shared_storages(rows: Iterable[Row]) -> dict[str, frozenset[str]]:
    """The nodes by each shared storage that not every node has (storage.cfg, `nodes`)."""
    listed = list(rows)
    nodes = {str(row.get("node")) for row in listed if row.get("type") == "node"}
    found: dict[str, set[str]] = {}
    for row in listed:
        if row.get("type") == "storage" and row.get("shared") == 1 and isinstance(row.get("storage"), str):
            found.setdefault(str(row["storage"]), set()).add(str(row.get("node")))
    return {name: frozenset(there) for name, there in sorted(found.items()) if not nodes <= there}


def rule_labels(rules: Iterable[Row], prefix: str) -> dict[str, dict[str, str]]:
    """Guest by number → its labels, of the HA rules of Proxmox VE 9 (ha-manager's Rules/NodeAffinity.pm and
    ResourceAffinity.pm); `prefix` stands before ids of nodes.

    A strict rule about nodes names those on which it may be, or with negative affinity may not be; else it prefers
    them, and of nodes with priorities those with the highest one.
    """
    found: dict[str, dict[str, str]] = {}
    for rule in rules:
        if rule.get("disable") in (1, True, "1"):
            continue
        labels = _node_labels(rule, prefix) if rule.get("type") == "node-affinity" else _group_labels(rule)
        for guest in str(rule.get("resources") or "").split(","):
            mine = found.setdefault(guest.strip().rpartition(":")[2], {})
            for name, text in labels.items():
                several = name == ANTI_AFFINITY_LABEL and name in mine
                mine[name] = f"{mine[name]}, {text}" if several else mine.get(name, text)
    return {guest: labels for guest, labels in found.items() if labels}


def _node_labels(rule: Row, prefix: str) -> dict[str, str]:
    pairs = [node.strip().partition(":") for node in str(rule.get("nodes") or "").split(",") if node.strip()]
    priority = {prefix + name: int(text) if text.isdecimal() else 0 for name, _, text in pairs}
    if not priority:
        return {}
    every, strict = ", ".join(sorted(priority)), rule.get("strict") in (1, True, "1")
    if rule.get("affinity") == "negative":
        return {f"{NONE}id": every} if strict else {}
    first = ", ".join(sorted(name for name, value in priority.items() if value == max(priority.values())))
    prefers = {f"{PREFER}id": first} if not strict or first != every else {}
    return {**({f"{ANY}id": every} if strict else {}), **prefers}


def _group_labels(rule: Row) -> dict[str, str]:
    group, affinity = str(rule.get("rule") or ""), rule.get("affinity")
    if not group or rule.get("type") != "resource-affinity" or affinity not in {"positive", "negative"}:
        return {}
    return {AFFINITY_LABEL if affinity == "positive" else ANTI_AFFINITY_LABEL: group}


def created_s(config: Row) -> float:
    """When a VM was made (s since the epoch; `meta` of its config, qm.conf(5)); 0 = it is not reported."""
    try:
        return as_number(_options(config.get("meta")).get("ctime", 0), "ctime")
    except ValueError:
        return 0.0


def _vcpus(row: Row, config: Row, kind: str, node: Row) -> int:
    """A VM has `vcpus` of its cores times sockets plugged in, one each where nothing is said.

    A container without `cores` may use all of its node's CPUs at once, so far as `cpulimit` lets it: 1.5 CPUs are two
    at half their time. Its `maxcpu` is then that limit, a fraction too (pve-container: vmstatus).
    """
    if kind == "qemu":
        cores, sockets = as_cpus(config.get("cores") or 1, "cores"), as_cpus(config.get("sockets") or 1, "sockets")
        return as_cpus(config.get("vcpus") or cores * sockets, "vcpus")
    if config.get("cores"):
        return as_cpus(config["cores"], "cores")
    limit = as_number(config.get("cpulimit") or 0, "cpulimit")
    most = node.get("maxcpu") or row.get("maxcpu")
    return whole_cpus(min(limit, as_number(most, "maxcpu")) if limit and most else limit or most, "cpulimit")


def _network(config: Row) -> NetworkSettings | None:
    """All NICs together; None where one of them is free."""
    rates = [as_number(nic.get("rate", 0), "rate") for nic in _devices(config, _NIC)]
    return NetworkSettings("dedicated", sum(rates) * _MBIT_PER_MB) if rates and min(rates) > 0 else None


def _disk_limit(config: Row) -> float | None:
    """All disks together, read plus write; None where one way of one disk is free (0 is free). CD drives are none."""
    limits = [
        as_number(disk.get(name, 0), name)
        for disk in _devices(config, _DISK)
        if disk.get("media") != "cdrom"
        for name in ("mbps_rd", "mbps_wr")
    ]
    return sum(limits) if limits and min(limits) > 0 else None


def _devices(config: Row, names: re.Pattern[str]) -> Iterator[Mapping[str, str]]:
    return (_options(value) for name, value in config.items() if names.match(str(name)))


def _options(text: object) -> Mapping[str, str]:
    """`a=1,b=2` as a mapping; parts without = stand for a default key and are not needed here."""
    return dict(part.split("=", 1) for part in str(text or "").split(",") if "=" in part)
