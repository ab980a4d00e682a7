"""Rules of a pool as labels of its hosts and VMs; no I/O.

Classes and fields by XAPI's data model (ocaml/idl), what keeps a VM from a host by `assert_can_boot_here` and
`assert_vm_is_compatible` (xapi_vm_helpers.ml, cpuid_helpers.ml), what keeps it where it is by the operations that
xapi_vm_lifecycle.ml refuses. What every host of the pool has is no rule: it would only cost time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from advisor.domain.rules import ANY, LOCAL_STORAGE, PREFER, SOFT_ANTI_AFFINITY
from advisor.inventories.reading import clean_labels
from profiler.observed import NEVER_MOVE_LABEL, REQUIRE_LABEL

Record = Mapping[str, Any]
Records = Mapping[str, Record]
Labels = dict[str, str]
Labelled = dict[str, Labels]  # by reference of a host or a VM
POOL, STORAGE, NETWORK, CPU = "pool", "sr.", "network.", "cpu_features"
PREFERRED = f"{PREFER}id"
GROUPS = "VM_group"  # there since XenServer 8; others do not know the call
CLASSES = ("pool", "SR", "PBD", "VBD", "network")
_NOWHERE, _APART = "OpaqueRef:NULL", "anti_affinity"
# The labels that are the source's own, and the classes without which it does not know them.
_KNOWN_BY: Mapping[str, tuple[str, ...]] = {
    POOL: ("pool",),
    f"{REQUIRE_LABEL}{POOL}": ("pool",),
    STORAGE: ("SR", "PBD"),
    f"{REQUIRE_LABEL}{STORAGE}": ("SR", "PBD", "VBD"),
    LOCAL_STORAGE: ("SR", "VBD"),
    NETWORK: ("PIF", "network"),
    f"{REQUIRE_LABEL}{NETWORK}": ("PIF", "network", "VIF"),
}
_FEATURES = {"hvm": ("features_hvm_host", "features_hvm"), "pv": ("features_pv_host", "features_pv")}


def own_labels(read: Collection[str]) -> frozenset[str]:
    """The labels of rules that are known after these classes were read; others stay as they are."""
    known = {label for label, needs in _KNOWN_BY.items() if all(name in read for name in needs)}
    return frozenset(known | {CPU, f"{ANY}{CPU}"})


def rules_of(
    records: Mapping[str, Records], vms: Collection[str], names: Mapping[str, str]
) -> tuple[Labelled, Labelled]:
    """Labels of hosts and of these VMs; `records` are by class, `names` the ids of hosts by reference."""
    hosts: Labelled = {reference: {} for reference in records["host"]}
    found: Labelled = {reference: {} for reference in vms}
    for pool in list(records.get("pool", {}).values())[:1]:  # a coordinator has one
        for labels in hosts.values():
            labels[POOL] = str(pool.get("uuid") or "")
        for labels in found.values():
            labels[f"{REQUIRE_LABEL}{POOL}"] = str(pool.get("uuid") or "")
    _storage(records, hosts, found)
    _networks(records, hosts, found)
    _cpus(records, hosts, found)
    groups, functions = _apart(records), _with_functions(records)
    for reference, labels in found.items():
        vm = records["VM"][reference]
        if reference in functions or _stays(vm):
            labels[NEVER_MOVE_LABEL] = "true"
        if home := names.get(str(vm.get("affinity"))):
            labels[PREFERRED] = home
        if group := groups.get(reference):
            labels[SOFT_ANTI_AFFINITY] = group
    return _clean(hosts), _clean(found)


def _storage(records: Mapping[str, Records], hosts: Labelled, vms: Labelled) -> None:
    """Storage repositories: a host reaches those that are plugged there, and a VM needs those of its disks."""
    repositories = records.get("SR", {})
    of_disk = {disk: name for name, record in repositories.items() for disk in _references(record, "VDIs")}
    used: dict[str, set[str]] = {}
    for disk in records.get("VBD", {}).values():
        repository = of_disk.get(str(disk.get("VDI")))
        if repository and disk.get("empty") is not True:
            used.setdefault(str(disk.get("VM")), set()).add(repository)
    shared = {name for name, record in repositories.items() if record.get("shared") is True}
    for reference, labels in vms.items():
        if used.get(reference, set()) - shared:
            labels[LOCAL_STORAGE] = "true"
    reached: dict[str, set[str]] = {name: set() for name in shared}
    for plug in records.get("PBD", {}).values():
        if plug.get("currently_attached") is True and str(plug.get("SR")) in reached:
            reached[str(plug.get("SR"))].add(str(plug.get("host")))
    if "PBD" in records:
        _reach(STORAGE, reached, used, _called(repositories), hosts, vms)


def _networks(records: Mapping[str, Records], hosts: Labelled, vms: Labelled) -> None:
    """Networks: a host has those of its interfaces; one without any interface is within a host, and everywhere."""
    reached: dict[str, set[str]] = {}
    for interface in records.get("PIF", {}).values():
        reached.setdefault(str(interface.get("network")), set()).add(str(interface.get("host")))
    used: dict[str, set[str]] = {}
    for interface in records.get("VIF", {}).values():
        used.setdefault(str(interface.get("VM")), set()).add(str(interface.get("network")))
    _reach(NETWORK, reached, used, _called(records.get("network", {})), hosts, vms)


def _reach(
    prefix: str,
    reached: Mapping[str, set[str]],
    used: Mapping[str, set[str]],
    called: Mapping[str, str],
    hosts: Labelled,
    vms: Labelled,
) -> None:
    """Labels for what some hosts reach and some do not, and of the VMs that use it."""
    some = {thing: there for thing, there in reached.items() if thing in called and not hosts.keys() <= there}
    for thing, there in some.items():
        for reference in there & hosts.keys():
            hosts[reference][f"{prefix}{called[thing]}"] = "true"
    for reference, labels in vms.items():
        for thing in used.get(reference, set()) & some.keys():
            labels[f"{REQUIRE_LABEL}{prefix}{called[thing]}"] = "true"


def _cpus(records: Mapping[str, Records], hosts: Labelled, vms: Labelled) -> None:
    """A VM that runs needs a CPU of the same vendor that has all features with which it was started."""
    names = {reference: _digest(record) for reference, record in records["host"].items()}
    if len(set(names.values())) < 2:
        return
    for reference, labels in hosts.items():
        labels[CPU] = names[reference]
    by_name = {name: records["host"][reference] for reference, name in names.items()}
    for reference, labels in vms.items():
        vm = records["VM"][reference]
        fits = sorted(name for name, host in by_name.items() if _has_features(vm, host))
        if fits and len(fits) < len(by_name):
            labels[f"{ANY}{CPU}"] = ", ".join(fits[:20])


def _has_features(vm: Record, host: Record) -> bool:
    wanted, there = _mapping(vm, "last_boot_CPU_flags"), _mapping(host, "cpu_info")
    if wanted.get("vendor") and there.get("vendor") and wanted["vendor"] != there["vendor"]:
        return False
    kind = "pv" if vm.get("domain_type") == "pv" else "hvm"
    sets = [words for name in _FEATURES[kind] if (words := _words(there.get(name))) is not None]
    needs = _words(wanted.get("features"))
    return needs is None or not sets or any(needs & ~has == 0 for has in sets)


def _words(text: object) -> int | None:
    """A set of features, hexadecimal words with - between them, as the bits of a number; None where it is none."""
    words = str(text or "").split("-")
    if not 1 <= len(words) <= 64 or not all(len(word) == 8 for word in words):
        return None
    try:
        return sum(int(word, 16) << 32 * place for place, word in enumerate(words))
    except ValueError:
        return None


def _digest(host: Record) -> str:
    """A short name for the vendor and the features of a host's CPUs."""
    info = _mapping(host, "cpu_info")
    reported = "/".join(str(info.get(name) or "") for name in ("vendor", *_FEATURES["hvm"], *_FEATURES["pv"]))
    return hashlib.sha256(reported.encode()).hexdigest()[:10]


def _apart(records: Mapping[str, Records]) -> dict[str, str]:
    """VM → its anti-affinity group, of which XAPI lets it have one; XAPI spreads these as well as it can."""
    groups = records.get(GROUPS, {})
    apart = {name: called for name, called in _called(groups).items() if groups[name].get("placement") == _APART}
    return {vm: called for name, called in sorted(apart.items()) for vm in _references(groups[name], "VMs")}


def _stays(vm: Record) -> bool:
    """Whether XAPI migrates it nowhere: with a PCI device, a USB device or a virtual GPU (of which some could)."""
    fields = ("attached_PCIs", "VUSBs", "VGPUs")
    return any(_references(vm, name) for name in fields) or bool(_mapping(vm, "other_config").get("pci"))


def _with_functions(records: Mapping[str, Records]) -> frozenset[str]:
    """VMs of which an interface is a virtual function of a NIC (SR-IOV)."""
    interfaces = records.get("VIF", {}).values()
    return frozenset(str(one.get("VM")) for one in interfaces if str(one.get("reserved_pci") or _NOWHERE) != _NOWHERE)


def _called(records: Records) -> dict[str, str]:
    """Objects by the name that an operator gave them, or by their UUID where that is not unique."""
    counts = Counter(str(record.get("name_label")) for record in records.values())
    names = {}
    for reference, record in records.items():
        label, uuid = str(record.get("name_label") or ""), str(record.get("uuid") or "")
        if name := label if label.isprintable() and 0 < len(label) <= 60 and counts[label] == 1 else uuid:
            names[reference] = name
    return names


def _references(record: Record, name: str) -> list[str]:
    value = record.get(name)
    return [str(one) for one in value] if isinstance(value, list) else []


def _mapping(record: Record, name: str) -> Record:
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}


def _clean(labelled: Labelled) -> Labelled:
    return {reference: clean_labels(labels) for reference, labels in labelled.items()}
