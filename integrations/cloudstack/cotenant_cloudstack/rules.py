"""Rules of CloudStack as labels of hosts and machines; no I/O.

Affinity groups by the four processors of plugins/affinity-group-processors, explicit dedication by
ExplicitDedicationProcessor.java, tags of offerings by HostVO.checkHostServiceOfferingTags, scopes of storage pools by
ScopeType.java. What holds on every host is no rule: it would only cost time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from advisor.domain.rules import LOCAL_STORAGE, SOFT_AFFINITY, SOFT_ANTI_AFFINITY
from cotenant_cloudstack.calls import Row
from profiler.observed import AFFINITY_LABEL, ANTI_AFFINITY_LABEL, NEVER_MOVE_LABEL, REQUIRE_LABEL

ZONE, CLUSTER, DEDICATED, TAG = "zone", "cluster", "dedicated", "tag."
EXPLICIT = "ExplicitDedication"
POLICIES: Mapping[str, str] = {
    "host anti-affinity": ANTI_AFFINITY_LABEL,
    "host affinity": AFFINITY_LABEL,
    "non-strict host anti-affinity": SOFT_ANTI_AFFINITY,
    "non-strict host affinity": SOFT_AFFINITY,
}
SHARED = "no"  # the label `dedicated` of a host that is for all, where others are dedicated
# What is dedicated, from the narrowest on: listing, its rows, and the field that names it there and in a host's row.
DEDICATIONS = (
    ("dedicated hosts", "listDedicatedHosts", "dedicatedhost", "hostid", "id"),
    ("dedicated clusters", "listDedicatedClusters", "dedicatedcluster", "clusterid", "clusterid"),
    ("dedicated pods", "listDedicatedPods", "dedicatedpod", "podid", "podid"),
    ("dedicated zones", "listDedicatedZones", "dedicatedzone", "zoneid", "zoneid"),
)
POOLS, VOLUMES, OF_PROJECTS = "storage pools", "volumes", "volumes of projects"
# The labels that are the source's own, and the listings without which it does not know them.
_KNOWN_BY: Mapping[str, tuple[str, ...]] = {
    f"{REQUIRE_LABEL}{ZONE}": ("hosts",),
    f"{REQUIRE_LABEL}{TAG}": ("offerings",),
    f"{REQUIRE_LABEL}{CLUSTER}": (POOLS, VOLUMES, OF_PROJECTS),
    LOCAL_STORAGE: (POOLS, VOLUMES, OF_PROJECTS),
    DEDICATED: ("hosts", *(name for name, *_ in DEDICATIONS)),
    f"{REQUIRE_LABEL}{DEDICATED}": ("hosts", *(name for name, *_ in DEDICATIONS)),
}
Listed = Mapping[str, Sequence[Row] | None]


def own_labels(listed: Listed) -> frozenset[str]:
    """The labels of rules that are known by these listings; others stay as they are."""
    return frozenset(label for label, needs in _KNOWN_BY.items() if all(listed.get(name) is not None for name in needs))


@dataclass(frozen=True, slots=True)
class Rules:
    """What rules are made of: zones, the group to which each host is dedicated, scopes of pools, pools of machines."""

    zones: int = 1
    dedicated: Mapping[str, str] = field(default_factory=dict)
    pools: Mapping[str, Row] = field(default_factory=dict)
    used: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, listed: Listed) -> Rules:
        """From the listings, of which some may lack."""
        hosts = listed.get("hosts") or ()
        used: dict[str, set[str]] = {}
        for name in (VOLUMES, OF_PROJECTS):
            for volume in listed.get(name) or ():
                used.setdefault(str(volume.get("virtualmachineid")), set()).add(str(volume.get("storageid")))
        return cls(
            len({row.get("zonename") for row in hosts if isinstance(row.get("zonename"), str)}),
            _dedicated(hosts, listed),
            {str(row.get("id")): row for row in listed.get(POOLS) or ()},
            {machine: frozenset(pools) for machine, pools in used.items()},
        )

    def of_host(self, row: Row) -> dict[str, object]:
        """The label of a host where some host is dedicated."""
        return {DEDICATED: self.dedicated.get(str(row.get("id")), SHARED)} if self.dedicated else {}

    def of_machine(self, row: Row, offering: Row) -> dict[str, object]:
        """The labels of a machine."""
        labels: dict[str, object] = {}
        groups = [group for group in row.get("affinitygroup") or () if isinstance(group, Mapping)]
        for policy, label in POLICIES.items():
            names = sorted(str(group.get("id")) for group in groups if group.get("type") == policy)
            if names:  # a label of affinity names one group
                labels[label] = ", ".join(names) if label == ANTI_AFFINITY_LABEL else names[0]
        if self.dedicated:
            names = sorted(str(group.get("id")) for group in groups if group.get("type") == EXPLICIT)
            labels[f"{REQUIRE_LABEL}{DEDICATED}"] = names[0] if names else SHARED
        if self.zones > 1:
            labels[f"{REQUIRE_LABEL}{ZONE}"] = row.get("zonename")
        for tag in str(offering.get("hosttags") or "").split(","):
            if tag.strip():
                labels[f"{REQUIRE_LABEL}{TAG}{tag.strip()}"] = "true"
        if (offering.get("serviceofferingdetails") or {}).get("pciDevice"):
            labels[NEVER_MOVE_LABEL] = "true"
        return {**labels, **self._of_storage(row)}

    def _of_storage(self, row: Row) -> dict[str, object]:
        pools = [self.pools[name] for name in self.used.get(str(row.get("id")), ()) if name in self.pools]
        clusters = sorted(str(pool.get("clusterid")) for pool in pools if pool.get("scope") == "CLUSTER")
        labels: dict[str, object] = {f"{REQUIRE_LABEL}{CLUSTER}": clusters[0]} if clusters else {}
        if any(pool.get("scope") == "HOST" for pool in pools):
            labels[LOCAL_STORAGE] = "true"
        return labels


def tags_of(row: Row) -> Iterable[str]:
    """The tags of a host; one whose tags are a rule in JavaScript has none that could be read."""
    tags = str(row.get("hosttags") or "")
    if row.get("istagarule") is True or tags == "null":
        return ()
    return [tag.strip() for tag in tags.split(",") if tag.strip()]


def _dedicated(hosts: Iterable[Row], listed: Listed) -> dict[str, str]:
    """Host → the affinity group of its dedication, the narrowest one that there is."""
    found: dict[str, str] = {}
    for name, _, _, resource, of_host in DEDICATIONS:
        groups = {str(row.get(resource)): str(row.get("affinitygroupid")) for row in listed.get(name) or ()}
        for host in hosts:
            group = groups.get(str(host.get(of_host)))
            if group:
                found.setdefault(str(host.get("id")), group)
    return found
