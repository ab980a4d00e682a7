"""What virsh says of a host and of its domains, as facts; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from advisor.inventories.reading import STOPPED_LOAD, Facts
from profiler.backends.libvirt.guests import cap_percent, disk_limit_mb_s, network, pinning
from profiler.cores import Groups, as_said
from profiler.host_kinds import HostKind
from profiler.names import instance_id, name_label
from profiler.parse.libvirt import parse_cells, parse_domain, parse_huge_pages_mb, parse_nodeinfo, parse_siblings
from profiler.parse.text import ParseError

KINDS: Mapping[str, HostKind] = {"qemu": "kvm", "lxc": "lxc"}  # by the scheme of a URI, without its transport
OWN_LABELS = frozenset({"source", "uuid", "domain", "name", "title", "image", "flavor_name", "project", "vcpu_ids"})


def host_facts(hostname: str, uri: str, nodeinfo: str, capabilities: str, source: str) -> Facts:
    """A host by the answers of hostname, uri, nodeinfo and capabilities; ValueError says what is not as it should be.

    Its id is its name, as an agent there gives it unless it is configured with another one.
    """
    scheme = uri.strip().partition(":")[0].partition("+")[0]
    if scheme not in KINDS:
        raise ValueError(f"libvirt's driver {scheme[:20]!r} is none of {', '.join(sorted(KINDS))}")
    name = hostname.strip()
    if not name:
        raise ValueError("it did not report its hostname")
    node = parse_nodeinfo(nodeinfo)
    facts: dict[str, object] = {
        "id": instance_id(name),
        "kind": KINDS[scheme],
        "pcpus": node.cpus,
        "memory_mb": node.memory_mb,
        "threads_per_core": node.threads_per_core,
        "labels": {"source": source, **name_label(name)},
    }
    if node.mhz:
        facts["cpu_mhz"] = node.mhz
    try:
        cells = parse_cells(capabilities)
    except ParseError:
        return facts  # a host without its NUMA nodes is better than none
    cpus = sorted({cpu for cell in cells for cpu in cell})
    if len(cpus) == node.cpus == sum(map(len, cells)):
        facts["cpu_ids"] = () if cpus == list(range(node.cpus)) else tuple(cpus)
        if len(cells) > 1:
            facts["numa"] = cells
        with suppress(ValueError):  # of a host whose answers contradict themselves the numbers say which are siblings
            facts["siblings"] = _siblings(capabilities, cpus, cells)
    return facts


def _siblings(capabilities: str, cpus: Sequence[int], cells: Groups) -> Groups:
    """The CPUs of each core that has several, without those that are not there."""
    there = frozenset(cpus)
    cores = (tuple(cpu for cpu in core if cpu in there) for core in parse_siblings(capabilities))
    return as_said("", len(cpus), tuple(cpus), cells, cores)[1]


def without_unused_pages(host: Facts, capabilities: str, definitions: Iterable[str]) -> Facts:
    """The host without the huge pages that no domain uses: they are reserved, and no other memory can be made of them.

    `definitions` are those of its active domains; one that makes no sense uses none.
    """
    try:
        unused_mb = parse_huge_pages_mb(capabilities)
    except ParseError:
        return host
    for xml in definitions if unused_mb else ():
        with suppress(ParseError):
            described = parse_domain(xml)
            unused_mb -= described.memory_mb if described.huge_pages else 0.0
    return {**host, "memory_mb": max(host["memory_mb"] - max(unused_mb, 0.0), 1.0)}


def instance_facts(uuid: str, xml: str, host: str, source: str, *, runs: bool) -> Facts:
    """A domain by its XML; ValueError says what is wrong there. Its weight is not reported: what the number means
    depends on the version of the host's control groups."""
    described = parse_domain(xml)
    if not described.name:
        raise ValueError("line 1: no element name")
    facts: dict[str, object] = {
        "id": instance_id(described.name),
        "host": host,
        "vcpus": described.vcpus,
        "memory_mb": described.memory_mb,
        "settings": {
            "pinning": pinning(described),
            "cap_percent": cap_percent(described.quotas, described.vcpus),
            "network": network(described.bandwidths),
            "disk_limit_mb_s": disk_limit_mb_s(described.disk_limits),
        },
        "labels": {"source": source, "uuid": uuid, **name_label(described.name), **described.labels},
    }
    return facts if runs else {**facts, "load": STOPPED_LOAD}
