"""Probe results on their way in: which are taken, why others are not, what models learn of hosts from them, and which
are results of two instances as users post them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

from sqlalchemy import Connection

from advisor.domain import Host, Instance, ProbeReport, pair_of
from advisor.settings import CLOCK_SKEW
from advisor.store import changes, colocations, counters, hosts, instances, probes
from advisor.validation import check_value
from profiler.observed import PROBE_NAMES, PROBED_VALUES, Colocation

MOST_BY_NAME = 2_000  # hosts; of more, the results of all are read at once


@dataclass(frozen=True, slots=True)
class TakenProbes:
    """What became of a batch; `dropped` has the position in the batch and the reason of each that was not taken.

    `older` are those of which something as new is stored.
    """

    accepted: int
    older: int
    dropped: tuple[tuple[int, str], ...]


def take(
    connection: Connection, batch: Sequence[ProbeReport], *, now: datetime, only: str | None = None, sender: str = ""
) -> TakenProbes:
    """Store the newest result of each probe of a host, instance or pair, and every result about two instances of a host
    as a co-location that its `sender` posted.

    `only` is the one host that the sender may speak for, with the instances on it, None = any. Raises InvalidInput for
    a value that no database stores.
    """
    check_value([(report.result.circumstances, report.result.marks) for report in batch])
    counters.hold(connection, "inventory")  # before any row: whoever changes hosts holds it first, too
    known_hosts = hosts.staying(connection, (report.host for report in batch))
    named = {name for report in batch for name in (report.instance, report.peer) if name}
    places = instances.places(connection, named)
    peers = places.keys() | hosts.known(connection, named)
    newest: dict[tuple[str, str, str, str], ProbeReport] = {}
    of_pairs: list[ProbeReport] = []
    dropped: list[tuple[int, str]] = []
    for position, report in enumerate(batch):
        reason = _fault(report, now, only, known_hosts, places, peers)
        if reason:
            dropped.append((position, reason))
            continue
        if report.is_of_pair:
            of_pairs.append(report)
        if report.key not in newest or newest[report.key].taken_at < report.taken_at:
            newest[report.key] = report
    measured = sorted({report.host for report in newest.values() if not report.instance})
    before = hosts.get_many(connection, measured)
    were = with_probed(connection, before)
    accepted = probes.put(connection, list(newest.values()))
    changed = [now.id for old, now in zip(were, with_probed(connection, before), strict=True) if old != now]
    if changed:  # else the result says nothing to a model, or is as it was
        changes.note(connection, counters.bump(connection, "inventory"), "host", changed)
    _post(connection, of_pairs, now, sender)
    return TakenProbes(accepted, len(batch) - len(dropped) - accepted, tuple(dropped))


def with_probed(connection: Connection, items: Sequence[Host]) -> tuple[Host, ...]:
    """Hosts with what their stored results say of PROBED_VALUES: the median over far ends of those that count."""
    several = len(items) > MOST_BY_NAME
    values: dict[str, dict[str, list[float]]] = {}
    for report in probes.of_hosts(connection, None if several else [host.id for host in items]):
        if not report.why_not_counted:
            host_values = values.setdefault(report.host, {})
            for name, figure in report.result.values.items():
                host_values.setdefault(f"{report.result.probe}.{name}", []).append(figure.value)
    return tuple(
        replace(host, probed={name: median(readings[name]) for name in PROBED_VALUES if name in readings})
        if (readings := values.get(host.id))
        else host
        for host in items
    )


def with_pair_faults(connection: Connection, reports: Sequence[ProbeReport]) -> tuple[ProbeReport, ...]:
    """The same, those about two instances with why they move no answer as their hosts are now."""
    found = iter(_pairs(connection, [report for report in reports if report.is_of_pair]))
    return tuple(
        replace(report, pair_fault=pair if isinstance(pair := next(found), str) else "")
        if report.is_of_pair
        else report
        for report in reports
    )


def _post(connection: Connection, reports: Sequence[ProbeReport], now: datetime, sender: str) -> None:
    """Keep results about two instances beside the co-locations that users post; those that are there stay."""
    pairs = [pair for pair in _pairs(connection, reports) if isinstance(pair, Colocation)]
    if not pairs:
        return
    counters.hold(connection, "posted")
    if sum(colocations.add(connection, pair, now, sender) for pair in pairs):
        counters.bump(connection, "posted")


def _pairs(connection: Connection, reports: Sequence[ProbeReport]) -> list[Colocation | str]:
    """Results about two instances as co-locations, or why they are none."""
    if not reports:
        return []
    residents: dict[str, list[Instance]] = {}
    for one in instances.on_hosts(connection, {report.host for report in reports}):
        residents.setdefault(str(one.host), []).append(one)
    alone = {report.key: report for report in probes.alone(connection, {report.instance for report in reports})}
    return [
        pair_of(
            report,
            residents.get(report.host, ()),
            alone.get((report.host, report.instance, "", report.result.probe)),
        )
        for report in reports
    ]


def _fault(
    report: ProbeReport,
    now: datetime,
    only: str | None,
    known_hosts: set[str],
    places: Mapping[str, str | None],
    peers: set[str],
) -> str:
    """Why a result is not taken; empty where it is."""
    if only not in {None, report.host}:
        return f"this token is for the agent of host {only}, not of {report.host}"
    if report.result.probe not in PROBE_NAMES:
        return f"there is no probe {report.result.probe[:60]!r}; there are {', '.join(PROBE_NAMES)}"
    if report.host not in known_hosts:
        return f"unknown host {report.host[:60]!r}"
    if report.instance and report.instance not in places:
        return f"unknown instance {report.instance[:60]!r}"
    if only is not None and report.instance and places[report.instance] != only:
        return f"this token is for the agent of host {only}, and {report.instance[:60]} is not on it"
    if report.peer and report.peer not in peers:
        return f"unknown peer {report.peer[:60]!r}; it is a host or an instance of the inventory"
    if report.taken_at > now + CLOCK_SKEW:
        return f"time is {(report.taken_at - now).total_seconds():.0f} s in the future; check the clock of the host"
    return ""
