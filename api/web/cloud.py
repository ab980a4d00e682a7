"""The cloud on one page: every host with the demand for its resources, and the instances that are worst off."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from advisor.domain import (
    MEMORY_SHORT,
    NO_SCORES,
    CloudNow,
    CloudScores,
    Host,
    HostMemory,
    HostNow,
    ResidentNow,
    names_of,
    rests_on,
    spoken,
    time_part,
)
from api.html import picture
from api.html.render import page
from api.routes.common import CloudDep
from api.web import chart, sorting, worth
from api.web.chart import Bar
from api.web.sorting import PARAMETER, Order, PageSlice, SortColumn
from profiler.host_kinds import HOST_KINDS

AT_ONCE = 50  # hosts on a page
WORST = 10  # instances in the list of the most affected
_LONGEST = 255
FILTERS = ("name", "label", "kind")  # of the address
READS = (*FILTERS, PARAMETER)
_DEFAULT = "affected"  # the order that CloudNow has
COLUMNS: Mapping[str, SortColumn] = {
    "host": SortColumn("Host", figure=False, largest_first=False),
    "affected": SortColumn("Most affected", figure=False, largest_first=False),
    "score": SortColumn("Score", largest_first=False, help="Mean score of the VMs, 100 = uncontended"),
    **{key: SortColumn(name, figure=False) for key, name in chart.NAMES.items()},
    "memory_mb": SortColumn("Memory", figure=False, help="Memory of the instances, over that of the host"),
    "crowded": SortColumn("Contended", help="Part of the time with more vCPUs ready to run than CPUs"),
    "instances": SortColumn("Instances"),
    "age": SortColumn("Data age"),
}
PageNumber = Annotated[int, Query(alias="page", ge=1)]


@dataclass(frozen=True, slots=True)
class InstanceLine:
    """One instance where it is, ready to be shown."""

    name: str
    host: str
    figure: str
    kept: Bar  # the same as a bar
    level: str  # good or bad, see api.web.sorting
    behind: str  # picture.FALLS_BEHIND where it does, else empty
    limit: str
    short: str  # part of the time in which it is short of CPU; empty = not known
    workload: str
    pending: bool


@dataclass(frozen=True, slots=True)
class HostLine:
    """One host, ready to be shown."""

    name: str
    kind: str
    labels: str
    enabled: bool
    instances: int
    worst: InstanceLine | None
    score: str
    score_level: str
    bars: tuple[Bar, ...]
    memory: Bar
    crowded: str  # part of the time with more vCPUs ready to run than CPUs; empty = not known
    age: str
    stale: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """Which hosts are shown: a part of the name, a label as `zone=a`, a kind; and what is wrong with each field."""

    name: str
    label: str
    kind: str
    wrong: Mapping[str, str]

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Filter:
        """From the address; a field that makes no sense is named in `wrong` and lets every host through."""
        fields = {key: query.get(key, "").strip()[:_LONGEST] for key in FILTERS}
        wrong = {}
        if fields["label"] and not fields["label"].partition("=")[1]:
            wrong["label"] = "is not a label and its value, such as zone=a"
        if fields["kind"] not in {"", *HOST_KINDS}:
            wrong["kind"] = f"is none of {', '.join(HOST_KINDS)}"
        return cls(**fields, wrong=wrong)

    def lets_through(self, now: HostNow) -> bool:
        """Whether a host is to be shown."""
        key, _, value = self.label.partition("=")
        return (
            any(spoken(self.name).lower() in name.lower() for name in names_of(now.host))
            and (not self.label or "label" in self.wrong or now.host.labels.get(key.strip()) == value.strip())
            and (not self.kind or "kind" in self.wrong or now.host.kind == self.kind)
        )

    @property
    def query(self) -> str:
        """The filter as the query of an address."""
        return urlencode(self.fields)

    @property
    def fields(self) -> dict[str, str]:
        """The fields that are set."""
        return {key: getattr(self, key) for key in FILTERS if getattr(self, key)}


def cloud(request: Request, cloud: CloudDep, number: PageNumber = 1) -> HTMLResponse:
    """Every host, the one with the most affected instance first unless `sort` names another column.

    A page number beyond the last shows the last page.
    """
    chosen, order = Filter.read(request.query_params), Order.read(request.query_params, COLUMNS, _DEFAULT)
    time, now, scored, memory = cloud.clock(), cloud.now(), cloud.scores(), cloud.memory()
    matching = [host for host in now.hosts if chosen.lets_through(host)]
    part = PageSlice.of(len(matching), number, AT_ONCE, "/cloud", chosen.fields | {PARAMETER: order.text})
    shown = matching
    if order.text != _DEFAULT:
        shown = order.first(part.end, matching, lambda host: _value(order.key, host, scored), lambda host: host.host.id)
    lines = [_line(host, now, time, scored, memory.get(host.host.id)) for host in part.cut(shown)]
    known = {bar.name for line in lines for bar in line.bars if bar.figure}
    return page(
        request,
        "cloud.html",
        status=422 if chosen.wrong else 200,
        now=now,
        filter=chosen,
        kinds=HOST_KINDS,
        hosts=lines,
        matching=len(matching),
        headings=order.headings(COLUMNS, "/cloud", chosen.fields),
        order=order.text,
        part=part,
        instances=sum(len(host.residents) for host in now.hosts),
        stale=sum(_is_stale(host, now, time) for host in now.hosts),
        newest=_newest(now, time),
        worst=worst_off(matching),
        known_demand=known_demand(matching),
        scores=worth.score_pane(scored.cloud, cloud.score_history()),
        resources=[key for key, name in chart.NAMES.items() if name in known],
        shown_names=known,
    )


def known_demand(hosts: Sequence[HostNow]) -> str:
    """What a statement that no instance on these hosts is affected rests on."""
    there = [resident.guessed for host in hosts for resident in host.residents]
    return rests_on(sum(there), len(there))


def instance_line(resident: ResidentNow, host: str) -> InstanceLine:
    """One instance where it is, ready to be shown."""
    limit = resident.instance.min_throughput_ratio
    level = "bad" if sorting.affected_level(resident) == "bad" else "good"
    return InstanceLine(
        name=resident.instance.id,
        host=host,
        figure=f"{resident.expected:.2f}",
        kept=chart.kept_bar(resident.expected, level),
        level=level,
        behind=picture.FALLS_BEHIND if resident.falls_behind else "",
        limit="" if limit is None else f"{limit:.2f}",
        short="" if resident.short is None else time_part(resident.short),
        workload=resident.instance.workload or "",
        pending=resident.pending,
    )


def age(host: HostNow, time: datetime) -> str:
    """How old the newest data of a host is at that time, in words."""
    return "never seen" if host.seen_at is None else picture.age_since(host.seen_at, time)


def labels_in_words(host: Host) -> str:
    """The labels that a host was given; that it is short of memory is shown beside its memory."""
    return ", ".join(f"{key}={value}" for key, value in sorted(host.labels.items()) if key != MEMORY_SHORT)


def _line(host: HostNow, now: CloudNow, time: datetime, scored: CloudScores, memory: HostMemory | None) -> HostLine:
    score = _score(host, scored)
    return HostLine(
        name=host.host.id,
        kind=host.host.kind,
        labels=labels_in_words(host.host),
        enabled=host.host.enabled,
        instances=len(host.residents),
        worst=instance_line(host.worst, host.host.id) if host.worst else None,
        score=worth.score_in_figure(score),
        score_level=worth.score_level(score),
        bars=chart.bars(host.pressure, host.cpu_peak),
        memory=chart.memory_bar(_memory_mb(host), host.host.ordinary_memory_mb, memory),
        crowded="" if host.crowded is None else time_part(host.crowded),
        age=age(host, time),
        stale=_is_stale(host, now, time),
    )


def _is_stale(host: HostNow, now: CloudNow, time: datetime) -> bool:
    allowed_s = now.fresh_s if host.patience_s is None else host.patience_s
    age_s = math.inf if host.seen_at is None else (time - host.seen_at).total_seconds()
    return age_s > allowed_s


def _newest(now: CloudNow, time: datetime) -> str:
    seen = [host.seen_at for host in now.hosts if host.seen_at is not None]
    return picture.age_since(max(seen), time) if seen else "nothing seen yet"


def _score(host: HostNow, scored: CloudScores) -> float | None:
    return scored.hosts.get(host.host.id, NO_SCORES).mean


def _value(key: str, host: HostNow, scored: CloudScores) -> float | str | None:
    """What a host is sorted by."""
    if key in chart.NAMES:
        return host.pressure.get(key)
    if key == "memory_mb":
        return _memory_mb(host) / max(host.host.ordinary_memory_mb, 1.0)
    if key == "age":
        return -math.inf if host.seen_at is None else -host.seen_at.timestamp()
    values: Mapping[str, float | str | None] = {
        "host": host.host.id,
        "affected": host.worst.expected if host.worst else None,
        "score": _score(host, scored),
        "crowded": host.crowded,
        "instances": len(host.residents),
    }
    return values[key]


def _memory_mb(host: HostNow) -> float:
    return sum(resident.instance.ordinary_memory_mb for resident in host.residents)


def worst_off(hosts: Sequence[HostNow]) -> list[InstanceLine]:
    """The most affected instances of these hosts: those beyond a limit or that fall behind, then by relative
    throughput."""
    candidates = (
        (not sorting.breaks(resident), resident.expected, resident.instance.id, host.host.id, resident)
        for host in hosts
        for resident in host.residents
        if sorting.is_affected(resident)
    )
    worst = heapq.nsmallest(WORST, candidates, key=lambda candidate: candidate[:4])
    return [instance_line(resident, host) for _, _, _, host, resident in worst]
