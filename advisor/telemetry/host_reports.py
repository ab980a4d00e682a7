"""What agents report of a host, learned on its way in: its own load, the state of its memory, probes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

from sqlalchemy import Connection

from advisor.domain import Host, HostMemory, Instance, ProbeReport, pair_of
from advisor.settings import CLOCK_SKEW
from advisor.store import counters, hosts, instances, models, probes
from advisor.store import hosts as store
from advisor.store.sample_store import STORED, SampleStore
from advisor.validation import check_value
from profiler.observed import PROBE_NAMES, PROBED_VALUES, Colocation, MetricSample

# A host's own load: the CPUs that its own work uses, outside of instances and of its driver domain, as measured.
#
# An agent measures how busy all CPUs are (`busy`). What no instance used of that, and not the driver domain, is work of
# the host: databases, storage, networks, and instances that the service does not know. In Xen `busy` is of Dom0 alone.

EVERY_S = 300.0  # samples of a host are read again
MOST_S = 3600.0  # of samples that are read at a time
OWN_LOAD_S = 1800.0  # over which older means fade
LEAST_CPUS, LEAST_PART = 0.25, 0.02  # of a CPU, and of a host's CPUs: what is less counts as nothing


def learn_own_load(connection: Connection, taken: Iterable[MetricSample], samples: SampleStore = STORED) -> bool:
    """Learn the own load of the hosts that these samples, which must be stored, are of; True where it is another."""
    newest: dict[str, float] = {}
    for sample in taken:
        if sample.metric == "busy" and sample.scope == "host":
            newest[sample.host] = max(sample.time_s, newest.get(sample.host, 0.0))
    return learn_own_load_of(connection, newest, samples)


def learn_own_load_of(connection: Connection, newest: Mapping[str, float], samples: SampleStore = STORED) -> bool:
    """The same by when the newest sample of how busy each host was is of."""
    news = False
    for row in hosts.own_load_due(connection, newest, EVERY_S) if newest else ():
        end_s = newest[row.id]
        begin_s = max(row.until_s or 0.0, end_s - MOST_S)
        cpus = _mean(samples.busy(connection, row.id, begin_s, end_s))
        if cpus is None:
            continue
        faded = 1.0 if row.cpus is None else min((end_s - begin_s) / OWN_LOAD_S, 1.0)
        now = cpus if row.cpus is None else row.cpus + faded * (cpus - row.cpus)
        news |= row.cpus is None or shown_own_load(now, row.pcpus) != shown_own_load(row.cpus, row.pcpus)
        hosts.put_own_load(connection, row.id, now, end_s)
    return news


def shown_own_load(cpus: float, pcpus: int) -> float:
    """In steps, so that noise makes no host another one and like hosts stay alike."""
    step = max(LEAST_CPUS, LEAST_PART * pcpus)
    return min(math.floor(cpus / step + 0.5) * step, float(pcpus))


def measured_own_load(connection: Connection) -> Mapping[str, float]:
    """The own load of each host of which it was measured, as shown."""
    return {row.id: shown_own_load(row.cpus, row.pcpus) for row in hosts.own_loads(connection)}


def _mean(sums: Mapping[str, tuple[float, int]]) -> float | None:
    """CPUs that were busy for nothing else; None where `busy` was not measured."""
    busy, number = sums.get("host", (0.0, 0))
    if not number:
        return None
    others = sums.get("instance", (0.0, 0))[0] + sums.get("driver_domain", (0.0, 0))[0]
    return max(busy - others, 0.0) / number / 100


# The state of each host's memory, learned from agents' samples on their way in, and which hosts are short of it.

_MEMORY_S = 300.0  # over which older rates fade
FRESH_S = 900.0  # as for scores: what was measured before says nothing about now
_RATES = {"psi_memory": "stalled", "swap_in_mb_s": "swap_in_mb_s", "swap_out_mb_s": "swap_out_mb_s"}
_LEVELS = {name: name for name in ("swap_mb", "ksm_mb", "available_mb", "huge_mb", "huge_free_mb")}


def learn_memory(connection: Connection, taken: Iterable[MetricSample], percent: float) -> bool:
    """Learn from the samples of hosts' memory; True where a host is short of memory since then, or no longer.

    Of samples that come again, or later than newer ones, nothing is learned. `percent` of stalls make a host short.
    """
    by_host: dict[str, dict[float, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for sample in taken:
        if sample.scope == "host" and (sample.metric in _RATES or sample.metric in _LEVELS):
            by_host[sample.host][sample.time_s][sample.metric] = sample.value
    if not by_host:
        return False
    known = store.get_memory(connection, by_host)
    new: dict[str, tuple[float, HostMemory]] = {}
    for host, readings in by_host.items():
        until_s, state = known.get(host, (0.0, HostMemory()))
        for time_s in sorted(readings):
            if time_s > until_s:
                state = _after(state, readings[time_s], time_s - until_s)
                until_s = time_s
        if host not in known or until_s > known[host][0]:
            new[host] = until_s, state
    store.put_memory(connection, new)
    before = {host: known[host][1] if host in known else HostMemory() for host in new}
    return any(short_words(state, percent) != short_words(before[host], percent) for host, (_, state) in new.items())


def _after(state: HostMemory, reading: Mapping[str, float], seconds: float) -> HostMemory:
    """Rates fade over MEMORY_S, sizes are those of the last reading."""
    faded = min(seconds / _MEMORY_S, 1.0)
    values: dict[str, float] = {_LEVELS[name]: value for name, value in reading.items() if name in _LEVELS}
    for name, field in _RATES.items():
        if name in reading:
            before = getattr(state, field)
            values[field] = reading[name] if before is None else before + faded * (reading[name] - before)
    return replace(state, **values)


def short_words(state: HostMemory, percent: float) -> str:
    """Why a host takes no new VM; empty = it does. In steps, so that noise makes no host another one."""
    return state.short_words if state.is_short(percent) else ""


def measured_memory(connection: Connection, now_s: float) -> Mapping[str, HostMemory]:
    """Of each host that was measured lately."""
    return store.memory_since(connection, now_s - FRESH_S)


def hosts_short_of_memory(connection: Connection, now_s: float, percent: float) -> Mapping[str, str]:
    """The hosts that take no new VM for want of memory, with the reason in words."""
    found = {host: short_words(state, percent) for host, state in measured_memory(connection, now_s).items()}
    return {host: words for host, words in found.items() if words}


# Probe results on their way in: which are taken, why others are not, what models learn of hosts from them, and which
# are results of two instances as users post them.

MOST_BY_NAME = 2_000  # hosts; of more, the results of all are read at once


@dataclass(frozen=True, slots=True)
class TakenProbes:
    """What became of a batch; `dropped` has the position in the batch and the reason of each that was not taken.

    `older` are those of which something as new is stored.
    """

    accepted: int
    older: int
    dropped: tuple[tuple[int, str], ...]


def take_probes(
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
        counters.note_changes(connection, counters.bump(connection, "inventory"), "host", changed)
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
    if sum(models.add_colocation(connection, pair, now, sender) for pair in pairs):
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
