"""CloudStack as a source: which listings a read is made of."""

from __future__ import annotations

from collections.abc import Callable

from advisor.inventories.calls import CallError, failed_part
from advisor.inventories.reading import Part, Reading, taken
from cotenant_cloudstack.calls import Api, Row, account
from cotenant_cloudstack.facts import OWN_LABELS, host_facts, instance_facts
from cotenant_cloudstack.rules import DEDICATIONS, OF_PROJECTS, POLICIES, POOLS, VOLUMES, Rules, own_labels

GONE = frozenset({"Destroyed", "Expunging", "Expunged", "Error"})


class CloudStack:
    """Reads all hosts and virtual machines each time: the API does not tell what has changed."""

    def __init__(self, cloud: str | None = None, *, open_api: Callable[[], Api] | None = None) -> None:
        self.name = f"cloudstack:{cloud}" if cloud else "cloudstack"
        self._open = open_api or (lambda: Api(account(cloud)))
        self._groups: frozenset[str] = frozenset()  # labels of affinity that were ever seen; else an operator's

    def read(self) -> Reading:
        """Read what may be read; see `Reading` for what is missing then."""
        try:
            api = self._open()
        except ValueError as error:
            return Reading(self.name, (Part("connection", "failed", reason=str(error)),))
        parts: list[Part] = []
        left_out: list[str] = []
        listed = {
            "hosts": _rows(api, parts, "hosts", "listHosts", "host", type="Routing"),
            "offerings": _rows(api, parts, "offerings", "listServiceOfferings", "serviceoffering", listall="true"),
            "machines": _rows(api, parts, "machines", "listVirtualMachines", "virtualmachine", listall="true"),
            "of projects": _rows(
                api, parts, "machines of projects", "listVirtualMachines", "virtualmachine",
                listall="true", projectid="-1",
            ),
            POOLS: _rows(api, parts, POOLS, "listStoragePools", "storagepool"),
            VOLUMES: _rows(api, parts, VOLUMES, "listVolumes", "volume", listall="true"),
            OF_PROJECTS: _rows(api, parts, OF_PROJECTS, "listVolumes", "volume", listall="true", projectid="-1"),
            **{name: _rows(api, parts, name, command, item) for name, command, item, *_ in DEDICATIONS},
        }  # fmt: skip
        rules = Rules.of(listed)
        offerings = {str(row.get("id")): row for row in listed["offerings"] or ()}
        speeds = {str(row.get("id")): row.get("cpuspeed") for row in listed["hosts"] or ()}
        rows = {str(row.get("id")): row for name in ("machines", "of projects") for row in listed[name] or ()}
        machines = {name: row for name, row in rows.items() if str(row.get("state")) not in GONE}
        by_id = {str(row.get("id")): row for row in listed["hosts"] or ()}
        hosts = taken(by_id, lambda _, row: host_facts(row, self.name, rules), left_out, _called)
        instances = taken(
            machines,
            lambda _, row: instance_facts(
                row, self.name, offerings.get(str(row.get("serviceofferingid")), {}), speeds, rules
            ),
            left_out,
            _called,
        )
        self._groups |= {label for facts in instances.values() for label in facts["labels"]} & set(POLICIES.values())
        return Reading(
            source=self.name,
            parts=tuple(parts),
            hosts=tuple(hosts.values()),
            instances=tuple(instances.values()),
            every_host=listed["hosts"] is not None and len(hosts) == len(listed["hosts"]),
            every_instance=listed["machines"] is not None and listed["of projects"] is not None,
            gone=frozenset(name for name, row in rows.items() if str(row.get("state")) in GONE),
            unclear=frozenset(machines.keys() - instances.keys()),
            own_labels=OWN_LABELS | own_labels(listed) | self._groups,
            left_out=tuple(left_out),
        )


def _rows(api: Api, parts: list[Part], name: str, command: str, item: str, **parameters: str) -> list[Row] | None:
    try:
        rows = api.rows(command, item, **parameters)
    except CallError as error:
        parts.append(failed_part(name, error))
        return None
    parts.append(Part(name, "read", len(rows)))
    return rows


def _called(key: str, row: Row) -> object:
    return row.get("name") or key
