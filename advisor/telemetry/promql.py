"""Series of the agent's exporter, read back by PromQL from a Prometheus-compatible store as windows for a profile."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import numpy as np

from advisor.errors import InvalidInput, NotFound
from advisor.settings import Settings
from advisor.telemetry.profiles import Seen, parse_since
from advisor.telemetry.series_store import Scraped, SeriesStore
from models.profiling.windows import SeriesKey, hosts_of
from profiler.collectors import unit_of
from profiler.gauges import ATTRIBUTED, PREFIX, gauge_of
from profiler.metrics import ADDITIONAL_UNITS, BY_NAME, SCOPES
from profiler.observed import check_id

_WHO = ("__name__", "instance", "scope", "statistic")  # labels that tell series of one scrape apart
_ENDS = "cotenant_profiler_window_end_timestamp_seconds"
_FINISHED = "cotenant_profiler_windows_total"
Source = frozenset[tuple[str, str]]  # all other labels: which scrapes a series is from


@dataclass(frozen=True, slots=True)
class _Series:
    """One series of windows: whose it is, which scrapes it is from, and its samples in order of time."""

    key: SeriesKey
    source: Source
    times: Sequence[float]
    values: Sequence[float]


def read(settings: Settings, instance_id: str, *, since: str, now: datetime) -> Seen:
    """What a profile is made of: an instance's window means, its host's where it was last, and its neighbours' CPU.

    A window that was scraped more than once counts once. NotFound where the store has nothing of the instance,
    SeriesUnavailable where it does not answer.
    """
    try:
        check_id(instance_id, "instance")  # it becomes part of a query
    except ValueError as error:
        raise InvalidInput(str(error), field="instance") from error
    store, since_s = SeriesStore.of(settings), parse_since(since)

    def select(selector: str) -> list[Scraped]:
        return list(store.select(selector, since_s, now))

    own_selector = f'{{__name__=~"cotenant_.+",statistic="mean",instance="{instance_id}"}}'
    own = [entry for entry in _named(select(own_selector)) if entry.key[1] == instance_id]
    hosts = hosts_of({entry.key: (entry.times, entry.values) for entry in own}, instance_id)
    if not hosts:
        raise NotFound(
            f"{store.url} has no series of instance {instance_id} in the last {since}; "
            "is the agent on its host scraped, with honor_labels: true?"
        )
    last = max(hosts, key=lambda host: (hosts[host][0], host))
    on_host = f'statistic="mean",host={quoted(last)}'  # the store may say any name
    around = (
        f'{{__name__=~"cotenant_.+",__name__!~"{ATTRIBUTED}.+",scope!="instance",{on_host}}}',
        f'cotenant_cpu_ratio{{scope="instance",instance!="{instance_id}",{on_host}}}',
    )
    by_host: dict[str, list[_Series]] = defaultdict(list)
    for entry in (*own, *(entry for selector in around for entry in _named(select(selector)))):
        by_host[entry.key[0]].append(entry)
    readings: dict[SeriesKey, tuple[Sequence[float], Sequence[float]]] = {}
    notes: tuple[str, ...] = ()
    for host, series in by_host.items():
        source = _fullest(series)
        ends = _only(source, select(f"{_ENDS}{{host={quoted(host)}}}"))
        readings |= _windows_of([entry for entry in series if entry.source == source], ends)
        if host == last and ends is not None:
            target = {name: text for name, text in ends.labels.items() if name not in {"__name__", "host"}}
            matchers = ",".join(f"{name}={quoted(text)}" for name, text in sorted(target.items()))
            counters = select(f"{_FINISHED}{{{matchers}}}")
            notes = _unseen(host, ends, [counter for counter in counters if len(counter.labels) == len(target) + 1])
    return Seen(readings, notes)


def quoted(text: str) -> str:
    """A string as PromQL reads it: JSON's escapes are among its own, but half a character (\\ud83d) is none there."""
    return json.dumps(text, ensure_ascii=False)


def _fullest(series: Sequence[_Series]) -> Source:
    """The scrapes that have most samples of a host."""
    counts: dict[Source, int] = defaultdict(int)
    for entry in series:
        counts[entry.source] += len(entry.times)
    return max(counts, key=lambda source: (counts[source], sorted(source)))


def _only(source: Source, scraped: Sequence[Scraped]) -> Scraped | None:
    """The one series from these scrapes; None where there is none, as with older agents, or more than one."""
    matching = [entry for entry in scraped if _source(entry.labels) == source]
    return matching[0] if len(matching) == 1 else None


def _windows_of(
    entries: Sequence[_Series], ends: Scraped | None
) -> dict[SeriesKey, tuple[Sequence[float], Sequence[float]]]:
    """One host's series from the same scrapes with each window once, at its end where the scrape says when that was.

    Where it does not, scrapes in which nothing of a host differs are taken for the same window, at the first of them.
    """
    series = {entry.key: entry for entry in entries}
    times = np.unique(np.concatenate([entry.times for entry in series.values()]))
    table = np.full((len(series), len(times)), np.nan)
    for row, entry in zip(table, series.values(), strict=True):
        row[np.searchsorted(times, entry.times)] = entry.values
    end_at = dict(zip(ends.times, ends.values, strict=True)) if ends is not None else {}
    end = np.array([end_at.get(time, np.nan) for time in times.tolist()])
    before = table[:, :-1]
    alike = ((table[:, 1:] == before) | (np.isnan(table[:, 1:]) & np.isnan(before))).all(axis=0)
    unknown = np.isnan(end[1:]) | np.isnan(end[:-1])
    first = np.concatenate([[True], ~np.where(unknown, alike, end[1:] == end[:-1])])
    when = np.where(np.isnan(end), times, end)
    windows: dict[SeriesKey, tuple[Sequence[float], Sequence[float]]] = {}
    for key, row in zip(series, table, strict=True):
        is_window = first & ~np.isnan(row)
        windows[key] = when[is_window].tolist(), row[is_window].tolist()
    return windows


def _unseen(host: str, ends: Scraped, finished: Sequence[Scraped]) -> tuple[str, ...]:
    """How many windows its agent finished between the first and the last scrape that none of them saw, if any."""
    if len(finished) != 1:
        return ()
    counts = dict(zip(finished[0].times, finished[0].values, strict=True))
    ends_and_counts = [(end, counts[time]) for time, end in zip(ends.times, ends.values, strict=True) if time in counts]
    # an agent that was started again counts from 0
    finished_since = sum(
        int(now - before if now >= before else now) for (_, before), (_, now) in pairwise(ends_and_counts)
    )
    missed = finished_since - sum(now != before for (before, _), (now, _) in pairwise(ends_and_counts))
    if missed <= 0:
        return ()
    return (f"no scrape saw {missed} of {finished_since + 1} windows on host {host}; scrape its agent once per window",)


def _source(labels: Mapping[str, str]) -> Source:
    return frozenset((name, value) for name, value in labels.items() if name not in _WHO)


def _gauges() -> dict[str, tuple[str, float]]:
    """The exporter's gauges without their prefix → metric, and the factor to its unit."""
    gauges = {}
    for metric in (*BY_NAME, *ADDITIONAL_UNITS):
        name, factor = gauge_of(metric, unit_of(metric))
        gauges[name] = metric, factor
    return gauges


GAUGES = _gauges()


def _named(scraped: Sequence[Scraped]) -> list[_Series]:
    """The series that are the agent's gauges, with their values in the metrics' units."""
    series = []
    for entry in scraped:
        owner = _whose(entry.labels)
        if owner is not None:
            key, factor = owner
            series.append(_Series(key, _source(entry.labels), entry.times, [value / factor for value in entry.values]))
    return series


def _whose(labels: Mapping[str, str]) -> tuple[SeriesKey, float] | None:
    """Whose series it is, and the factor from the metric's unit to its gauge's; None = none of the agent's."""
    name, scope = labels.get("__name__", ""), labels.get("scope", "")
    is_share = name.startswith(ATTRIBUTED)
    gauge = GAUGES.get(name.removeprefix(ATTRIBUTED if is_share else PREFIX))
    if gauge is None or scope not in SCOPES or "host" not in labels:
        return None
    # A series that names no instance gets the scraped address as one, so the scope says whether there is one.
    owner = labels.get("instance") if is_share or scope == "instance" else None
    if is_share != (scope == "driver_domain" and owner is not None):
        return None
    return (labels["host"], owner, scope, gauge[0]), gauge[1]
