"""A pool of XCP-ng or XenServer as a source: which calls a read is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from advisor.domain.rules import SOFT_ANTI_AFFINITY
from advisor.inventories.calls import CallError, failed_part, printable
from advisor.inventories.reading import Facts, Part, Reading, taken
from cotenant_xapi.calls import Records, XapiSession, account
from cotenant_xapi.facts import NOWHERE, OWN_LABELS, PRESENT, Record, host_facts, instance_facts, name_of
from cotenant_xapi.rules import CLASSES, GROUPS, PREFERRED, own_labels, rules_of

# What a read cannot do without, and what only adds to it.
_NEEDED, _FURTHER = ("host", "host_metrics", "VM"), ("VIF", "PIF", "PIF_metrics", *CLASSES, GROUPS)
_NO_SUCH_CALL = "MESSAGE_METHOD_UNKNOWN"


class Xapi:
    """Reads hosts, VMs and their links with one call for each class."""

    def __init__(
        self,
        cloud: str | None = None,
        ca_file: Path | None = None,
        fingerprint: str | None = None,
        *,
        open_session: Callable[[], XapiSession] | None = None,
    ) -> None:
        self.name = f"xapi:{cloud}" if cloud else "xapi"
        self._open = open_session or (lambda: XapiSession(account(cloud, ca_file, fingerprint)))
        self._soft: frozenset[str] = frozenset()  # labels of soft rules that were ever seen; else an operator's

    def read(self) -> Reading:
        """Read what may be read; a VM that cannot be understood, or whose host is not live, stays as it is."""
        parts: list[Part] = []
        records: dict[str, Records] = {}
        try:
            with self._open() as session:
                for name in (*_NEEDED, *_FURTHER):
                    try:
                        records[name] = session.records(name)
                        parts.append(Part(name, "read", len(records[name])))
                    except CallError as error:
                        if name != GROUPS or _NO_SUCH_CALL not in str(error):
                            parts.append(failed_part(name, error))
        except ValueError as error:
            return Reading(self.name, (Part("connection", "failed", reason=str(error)),))
        except CallError as error:
            return Reading(self.name, (failed_part("connection", error),))
        if any(name not in records for name in _NEEDED):
            return Reading(self.name, tuple(parts))
        left_out: list[str] = []
        hosts = self._hosts(records, left_out)
        names = {reference: str(host["id"]) for reference, host in hosts.items()}
        vms, unclear = self._instances(records, names, left_out)
        host_labels, vm_labels = rules_of(records, vms, names)
        given = {name for labels in vm_labels.values() for name in labels}
        self._soft |= given & {PREFERRED, SOFT_ANTI_AFFINITY}
        return Reading(
            source=self.name,
            parts=tuple(parts),
            hosts=tuple(_labelled(hosts, host_labels)),
            instances=tuple(_labelled(vms, vm_labels)),
            every_host=len(hosts) == len(records["host"]),
            every_instance=True,
            unclear=unclear,
            own_labels=OWN_LABELS | own_labels(records) | self._soft,
            left_out=tuple(left_out),
        )

    def _hosts(self, records: dict[str, Records], left_out: list[str]) -> dict[str, Facts]:
        """Facts of hosts by reference. An agent goes by the name that the machine has itself."""
        metrics, links = records["host_metrics"], records.get("PIF_metrics", {})

        def facts(reference: str, record: Record) -> Facts:
            own_links = [
                links.get(str(pif.get("metrics")), {})
                for pif in records.get("PIF", {}).values()
                if pif.get("host") == reference and pif.get("physical") is True
            ]
            name = name_of(record, "hostname", "name_label", "uuid")
            return host_facts(record, metrics.get(str(record.get("metrics"))), own_links, name, self.name)

        return taken(records["host"], facts, left_out, lambda _, record: f"host {_called(record)}")

    def _instances(
        self, records: dict[str, Records], hosts: dict[str, str], left_out: list[str]
    ) -> tuple[dict[str, Facts], frozenset[str]]:
        """Facts by reference of VMs that are on a host, and UUIDs of those that are there and could not be read."""
        present = {
            reference: record
            for reference, record in records["VM"].items()
            if str(record.get("power_state")) in PRESENT
            and not any(record.get(field) for field in ("is_a_template", "is_a_snapshot", "is_control_domain"))
        }
        name_counts = Counter(str(record.get("name_label")) for record in present.values())
        by_vm: dict[str, list[Record]] = {}
        for interface in records.get("VIF", {}).values():
            by_vm.setdefault(str(interface.get("VM")), []).append(interface)

        def facts(reference: str, record: Record) -> Facts:
            host = hosts.get(str(record.get("resident_on", NOWHERE)))
            if host is None:
                raise ValueError("nothing is known of its host; it stays as it is")
            fields = ("name_label", "uuid") if name_counts[str(record.get("name_label"))] == 1 else ("uuid",)
            return instance_facts(record, by_vm.get(reference, []), name_of(record, *fields), host, self.name)

        instances = taken(present, facts, left_out, lambda _, record: f"VM {_called(record)}")
        unclear = (present[reference] for reference in present.keys() - instances.keys())
        return instances, frozenset(str(record.get("uuid")) for record in unclear)


def _labelled(items: Mapping[str, Facts], labels: Mapping[str, Mapping[str, str]]) -> Iterator[Facts]:
    return ({**facts, "labels": {**facts["labels"], **labels[reference]}} for reference, facts in items.items())


def _called(record: Record) -> str:
    return printable(record.get("name_label") or record.get("uuid"))[:60]
