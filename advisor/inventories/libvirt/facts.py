"""What virsh says of a host and of its domains, as facts; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from advisor.inventories.reading import STOPPED_LOAD, Facts
from profiler import huge_pages
from profiler.backends.libvirt.guests import cap_percent, disk_limit_mb_s, network, pinning
from profiler.cores import Groups, as_said
from profiler.host_kinds import HostKind
from profiler.names import instance_id, name_label
from profiler.parse.libvirt import DomainDescription, parse_domain
from profiler.parse.libvirt_hosts import parse_cells, parse_huge_pages, parse_nodeinfo, parse_siblings
from profiler.parse.text import ParseError

KINDS: Mapping[str, HostKind] = {"qemu": "kvm", "lxc": "lxc"}  # by the scheme of a URI, without its transport
OWN_LABELS = huge_pages.LABELS | {
    "source", "uuid", "domain", "name", "title", "image", "flavor_name", "project", "vcpu_ids",
}  # fmt: skip


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
        "labels": {"source": source, **name_label(name), **huge_pages.pools(_pools(capabilities))},
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


def _pools(capabilities: str) -> dict[int, int]:
    with suppress(ParseError):  # a host without its huge pages is better than none
        return parse_huge_pages(capabilities)
    return {}


def described(xml: str) -> DomainDescription:
    """What a domain's XML says; ValueError says what is wrong there."""
    found = parse_domain(xml)
    if not found.name:
        raise ValueError("line 1: no element name")
    return found


def instance_facts(uuid: str, described: DomainDescription, host: Facts, source: str, *, runs: bool) -> Facts:
    """A domain by what its XML says and by its host. Its weight is not reported: what the number means depends on the
    version of the host's control groups."""
    pages = {} if described.huge_page_kib is None else _pages(described, host["labels"])
    facts: dict[str, object] = {
        "id": instance_id(described.name),
        "host": host["id"],
        "vcpus": described.vcpus,
        "memory_mb": described.memory_mb,
        "settings": {
            "pinning": pinning(described),
            "cap_percent": cap_percent(described.quotas, described.vcpus),
            "network": network(described.bandwidths),
            "disk_limit_mb_s": disk_limit_mb_s(described.disk_limits),
        },
        "labels": {"source": source, "uuid": uuid, **name_label(described.name), **described.labels, **pages},
    }
    return facts if runs else {**facts, "load": STOPPED_LOAD}


def _pages(described: DomainDescription, labels: Mapping[str, str]) -> dict[str, str]:
    """How many huge pages it needs. The host's default size is not reported: it is that of its only pool, or 2 MiB."""
    if described.huge_page_kib:
        return huge_pages.needs(described.memory_mb, described.huge_page_kib)
    pools = [mb for name, mb in huge_pages.PAGES_MB.items() if f"{huge_pages.HAS}{name}" in labels]
    kib = int(pools[0] * 1024) if len(pools) == 1 else huge_pages.DEFAULT_KIB
    return huge_pages.needs(described.memory_mb, kib)
