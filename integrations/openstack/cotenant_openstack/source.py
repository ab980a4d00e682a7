"""OpenStack as a source: which listings a read is made of, and what it may skip because nothing has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from advisor.inventories.reading import Part, Reading, taken
from cotenant_openstack.facts import (
    ASSUMED,
    GROUP_LABELS,
    OWN_LABELS,
    asked_traits,
    changed_or_gone,
    counted,
    group_labels,
    host_facts,
    instance_facts,
    not_modelled,
    zones_of,
)
from cotenant_openstack.listings import Listings, Row, connect

_SETTINGS = "name a cloud of clouds.yaml by --cloud or OS_CLOUD, or set OS_AUTH_URL and what belongs to it"
MOST_TRAITS = 100  # that are asked about, with one call each
OVERLAP = timedelta(minutes=5)  # by which clocks may differ: a server that is reported twice does no harm


class OpenStack:
    """Reads hosts whole and servers since the last read; every `whole_every`-th read takes all servers.

    An account without the rights of an administrator sees less; what it may not see is not reported, and stays as it
    is.
    """

    def __init__(
        self,
        cloud: str | None = None,
        *,
        whole_every: int = 10,
        connection: Callable[[], Any] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.name = f"openstack:{cloud}" if cloud else "openstack"
        self._connect = connection or (lambda: connect(cloud))
        self._connection: Any = None
        self._whole_every = whole_every
        self._clock = clock
        self._reads = 0
        self._since: datetime | None = None  # None = the next read takes all servers
        self._asked_traits: frozenset[str] = frozenset()
        self._inventories: dict[str, tuple[Any, dict[str, Row]]] = {}  # of a provider, with its generation then

    def read(self) -> Reading:
        """Read what may be read; see `Reading` for what is missing then."""
        try:
            self._connection = self._connection or self._connect()
        except Exception as error:  # noqa: BLE001 - openstacksdk and keystoneauth have no common root for wrong settings
            reason = f"{' '.join(str(error).split())[:200]}; {_SETTINGS}"
            return Reading(self.name, (Part("connection", "failed", reason=reason),))
        listings = Listings(self._connection)
        begun = self._clock()
        whole = self._since is None or self._reads % self._whole_every == 0
        hypervisors = listings.hypervisors()
        services = listings.services()
        aggregates = listings.aggregates() or []
        zones = zones_of(listings.zones(), aggregates)
        flavors = listings.flavors() or []
        capacity = self._capacity(listings)
        # Only where some CPUs are dedicated does it matter what images say.
        apart = any("PCPU" in promises for promises in capacity.values())
        cpu_policies = listings.cpu_policies() if apart else ({} if capacity else None)
        classes = counted(capacity.values())
        groups = listings.server_groups()
        servers = listings.servers(None if whole else self._since)
        traits = self._traits(listings, flavors, servers or ())
        of_groups = group_labels(groups or [])
        reasons = [not_modelled(row) for row in hypervisors or ()]
        left_out = [reason for reason in reasons if reason]
        modelled = {
            str(row.get("hypervisor_hostname") or row.get("id")): row
            for row, reason in zip(hypervisors or (), reasons, strict=True)
            if not reason
        }
        hosts = taken(
            modelled,
            lambda _, row: host_facts(
                row,
                source=self.name,
                zones=zones,
                aggregates=aggregates,
                inventories=capacity.get(row["id"]),
                traits=[name for name, there in sorted(traits.items()) if row["id"] in there],
            ),
            left_out,
            lambda name, _: name,
        )
        specs = {str(flavor.get("name")): flavor.get("extra_specs") or {} for flavor in flavors}
        placed, gone, unclear = changed_or_gone(servers or [])
        servers_there = {str(row["id"]): row for row in placed}
        instances = taken(
            servers_there,
            lambda _, row: instance_facts(
                row,
                source=self.name,
                current_specs=specs,
                groups=of_groups,
                zoned=len(set(zones.values())) > 1,
                cpu_policies=cpu_policies,
                classes=classes,
                traits=traits,
            ),
            left_out,
            lambda name, _: name,
        )
        if servers is not None:
            self._since = begun - OVERLAP
            self._reads += 1
        return Reading(
            source=self.name,
            parts=tuple(listings.parts),
            hosts=tuple(hosts.values()),
            instances=tuple(instances.values()),
            # Where a cell is down or services cannot be listed, hosts that are not reported may be there all the same.
            every_host=hypervisors is not None
            and services is not None
            and not (len(hosts) < len(modelled) or any(service.get("status") == "UNKNOWN" for service in services)),
            every_instance=whole and servers is not None,
            gone=gone,
            unclear=unclear | (servers_there.keys() - instances.keys()),
            own_labels=OWN_LABELS
            | (frozenset() if groups is None else GROUP_LABELS)
            | ({ASSUMED} if capacity else frozenset()),
            left_out=tuple(left_out),
        )

    def _traits(self, listings: Listings, flavors: Sequence[Row], servers: Sequence[Row]) -> dict[str, frozenset[str]]:
        """Providers by trait, for the traits that any flavor named so far; {} where one of them cannot be read."""
        embedded = [row.get("flavor") for row in servers]
        specs = [one.get("extra_specs") for one in (*flavors, *embedded) if isinstance(one, Mapping)]
        asked = asked_traits(one for one in specs if isinstance(one, Mapping))
        self._asked_traits = frozenset(sorted(self._asked_traits | asked)[:MOST_TRAITS])
        found: dict[str, frozenset[str]] = {}
        for trait in sorted(self._asked_traits):
            providers = listings.with_trait(trait)
            if providers is None:
                return {}
            found[trait] = providers
        return found

    def _capacity(self, listings: Listings) -> dict[str, dict[str, Row]]:
        """What each provider promises, by id; asked again only where Placement's generation has moved."""
        providers = listings.providers()
        if providers is None:
            return {}
        by_uuid = {str(row.get("uuid")): row for row in providers}
        for uuid, row in by_uuid.items():
            known = self._inventories.get(uuid)
            if row.get("parent_provider_uuid") or (known and known[0] == row.get("generation")):
                continue
            inventories = listings.inventories(uuid)
            if inventories is None:
                break  # whatever it is, it would be the same for the next thousand
            self._inventories[uuid] = (row.get("generation"), inventories)
        self._inventories = {name: entry for name, entry in self._inventories.items() if name in by_uuid}
        return {name: inventories for name, (_, inventories) in self._inventories.items()}
