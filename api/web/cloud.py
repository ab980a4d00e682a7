"""The cloud on one page: every host with what it is asked for, and who is worst off."""

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

from advisor.domain import CloudNow, HostNow, ResidentNow, time_part
from api.html.render import page
from api.routes.common import CloudDep
from api.web import bars, picture
from profiler.host_kinds import HOST_KINDS

AT_ONCE = 50  # hosts on a page
WORST = 10  # instances in the list of the worst off
_LONGEST = 255
FILTERS = ("name", "label", "kind")  # of the address
PageNumber = Annotated[int, Query(alias="page", ge=1)]


@dataclass(frozen=True, slots=True)
class InstanceLine:
    """One instance where it is, ready to be shown."""

    name: str
    host: str
    figure: str
    kept: bars.Bar  # the same as a bar
    level: str  # good or bad: whether it keeps its limit, or what unharmed means without one
    limit: str
    short: str  # part of the time in which it is short of CPU, empty = not known
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
    bars: tuple[bars.Bar, ...]
    crowded: str  # part of the time with more vCPUs ready to run than CPUs, empty = not known
    age: str
    stale: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """Which hosts are shown: a part of the name, a label as `zone=a`, a kind; and what is wrong with that."""

    name: str
    label: str
    kind: str
    wrong: Mapping[str, str]

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Filter:
        """What stands in the address bar; a filter that makes no sense is told and left out."""
        given = {key: query.get(key, "").strip()[:_LONGEST] for key in FILTERS}
        wrong = {}
        if given["label"] and not given["label"].partition("=")[1]:
            wrong["label"] = "is not a label and its value, such as zone=a"
        if given["kind"] not in {"", *HOST_KINDS}:
            wrong["kind"] = f"is none of {', '.join(HOST_KINDS)}"
        return cls(**given, wrong=wrong)

    def lets_through(self, now: HostNow) -> bool:
        """Whether a host is to be shown."""
        key, _, value = self.label.partition("=")
        return (
            self.name.lower() in now.host.id.lower()
            and (not self.label or "label" in self.wrong or now.host.labels.get(key.strip()) == value.strip())
            and (not self.kind or "kind" in self.wrong or now.host.kind == self.kind)
        )

    @property
    def query(self) -> str:
        """The filter as it stands in an address, with what follows it."""
        given = {"name": self.name, "label": self.label, "kind": self.kind}
        return urlencode({key: value for key, value in given.items() if value})


def cloud(request: Request, cloud: CloudDep, number: PageNumber = 1) -> HTMLResponse:
    """Every host, the one with the worst-off instance first; beyond the last page there is the last one."""
    chosen = Filter.read(request.query_params)
    now, told = cloud.clock(), cloud.now()
    fitting = [host for host in told.hosts if chosen.lets_through(host)]
    last = max((len(fitting) + AT_ONCE - 1) // AT_ONCE, 1)
    number = min(number, last)
    shown = fitting[(number - 1) * AT_ONCE : number * AT_ONCE]
    lines = [_line(one, told, now) for one in shown]
    known = {bar.name for line in lines for bar in line.bars if bar.figure}
    return page(
        request,
        "cloud.html",
        status=422 if chosen.wrong else 200,
        told=told,
        filter=chosen,
        kinds=HOST_KINDS,
        hosts=lines,
        fitting=len(fitting),
        instances=sum(len(host.residents) for host in told.hosts),
        stale=sum(_is_stale(host, told, now) for host in told.hosts),
        newest=_newest(told, now),
        worst=worst_off(fitting),
        resources=[name for name in bars.NAMES.values() if name in known],
        number=number,
        last=last,
        at_once=AT_ONCE,
    )


def resident(now: ResidentNow, host: str) -> InstanceLine:
    """One instance where it is, ready to be shown."""
    limit = now.instance.min_throughput_ratio
    level = "bad" if now.expected < (picture.KEPT if limit is None else limit) else "good"
    return InstanceLine(
        name=now.instance.id,
        host=host,
        figure=f"{now.expected:.2f}",
        kept=bars.kept(now.expected, level),
        level=level,
        limit="" if limit is None else f"{limit:.2f}",
        short="" if now.short is None else time_part(now.short),
        workload=now.instance.workload or "",
        pending=now.pending,
    )


def age(host_now: HostNow, now: datetime) -> str:
    """How old the news of a host is, in words."""
    return (
        "never seen"
        if host_now.seen_at is None
        else picture.age_in_words(max((now - host_now.seen_at).total_seconds(), 0.0))
    )


def _line(host_now: HostNow, told: CloudNow, now: datetime) -> HostLine:
    return HostLine(
        name=host_now.host.id,
        kind=host_now.host.kind,
        labels=", ".join(f"{key}={value}" for key, value in sorted(host_now.host.labels.items())),
        enabled=host_now.host.enabled,
        instances=len(host_now.residents),
        worst=resident(host_now.worst, host_now.host.id) if host_now.worst else None,
        bars=bars.bars(host_now.pressure, host_now.cpu_peak),
        crowded="" if host_now.crowded is None else time_part(host_now.crowded),
        age=age(host_now, now),
        stale=_is_stale(host_now, told, now),
    )


def _is_stale(host_now: HostNow, told: CloudNow, now: datetime) -> bool:
    allowed_s = told.fresh_s if host_now.patience_s is None else host_now.patience_s
    age_s = math.inf if host_now.seen_at is None else (now - host_now.seen_at).total_seconds()
    return age_s > allowed_s


def _newest(told: CloudNow, now: datetime) -> str:
    seen = [host.seen_at for host in told.hosts if host.seen_at is not None]
    return picture.age_in_words(max((now - max(seen)).total_seconds(), 0.0)) if seen else "nothing seen yet"


def worst_off(hosts: Sequence[HostNow]) -> list[InstanceLine]:
    """The worst-off instances of these hosts, of those that are below their limit or lose more than a tenth."""
    every = (
        (one.expected, one.instance.id, host.host.id, one)
        for host in hosts
        for one in host.residents
        if one.expected < max(picture.KEPT, one.instance.min_throughput_ratio or 0.0)
    )
    return [resident(one, host) for _, _, host, one in heapq.nsmallest(WORST, every, key=lambda known: known[:3])]
