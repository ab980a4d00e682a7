"""All instances on one page: their hosts, sizes, demand and what is predicted of them; sorted, filtered, paged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import CloudNow, Instance, Inventory, ResidentNow, time_part
from api.html import picture
from api.html.render import page
from api.routes.common import CloudDep
from api.web import chart, sorting
from api.web.cloud import PageNumber
from api.web.sorting import PARAMETER, Order, PageSlice, SortColumn, Value

AT_ONCE = 50  # instances on a page
FILTERS = ("name", "host", "workload", "label", "only")  # of the address
ONLY = {"": "all", "affected": "most affected", "unplaced": "on no host"}
READS = (*FILTERS, PARAMETER)
_PATH, _LONGEST, _DEFAULT = "/instances", 255, "throughput"
_MEASURED = frozenset({"measured", "history", "given"})  # origins of a demand that is the instance's own
COLUMNS: Mapping[str, SortColumn] = {
    "name": SortColumn("Instance", figure=False, largest_first=False),
    "host": SortColumn("Host", figure=False, largest_first=False),
    "vcpus": SortColumn("vCPUs"),
    "memory": SortColumn("Memory"),
    "demand": SortColumn("CPU demand", help="Mean demand in CPUs; ≈ estimated from similar instances or from its size"),
    "delivered": SortColumn("CPU delivered", largest_first=False, help="Predicted part of its CPU demand that it gets"),
    "contended": SortColumn("Contended", help="Predicted part of the time in which it gets less CPU than its demand"),
    "throughput": SortColumn(
        "Relative throughput", figure=False, largest_first=False, help="Predicted throughput over that alone"
    ),
    "workload": SortColumn("Workload", figure=False, largest_first=False),
}


class ListedInstance(NamedTuple):
    """An instance with its host (empty = on none) and what is predicted of it there, None = nothing."""

    instance: Instance
    host: str
    now: ResidentNow | None


_VALUES: Mapping[str, Callable[[ListedInstance], Value]] = {  # what instances are sorted by; None = not known
    "name": lambda listed: listed.instance.id,
    "host": lambda listed: listed.host or None,
    "vcpus": lambda listed: listed.instance.vcpus,
    "memory": lambda listed: listed.instance.memory_mb,
    "demand": lambda listed: listed.instance.demand["cpu"].mean if "cpu" in listed.instance.demand else None,
    "delivered": lambda listed: listed.now.delivered if listed.now else None,
    "contended": lambda listed: listed.now.short if listed.now else None,
    "throughput": lambda listed: listed.now.expected if listed.now else None,
    "workload": lambda listed: listed.instance.workload,
}


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """Which instances are shown; `wrong` names what is wrong with a field, which then lets every instance through."""

    name: str
    host: str
    workload: str
    label: str
    only: str
    wrong: Mapping[str, str]
    exact: bool  # `host` is the id of a host, not a part of one

    @classmethod
    def read(cls, query: Mapping[str, str], hosts: Collection[str]) -> InstanceFilter:
        """From the address; `hosts` are the ids of all hosts."""
        fields = {key: query.get(key, "").strip()[:_LONGEST] for key in FILTERS}
        wrong = {}
        if fields["label"] and not fields["label"].partition("=")[1]:
            wrong["label"] = "is not a label and its value, such as tier=web"
        if fields["only"] not in ONLY:
            wrong["only"] = f"is none of {', '.join(name for name in ONLY if name)}"
        return cls(**fields, wrong=wrong, exact=fields["host"] in hosts)

    @property
    def fields(self) -> dict[str, str]:
        """The fields that are set."""
        return {key: getattr(self, key) for key in FILTERS if getattr(self, key)}

    def lets_through(self, listed: ListedInstance) -> bool:
        """Whether an instance is to be shown; a name is a part of the id or of the label `name`."""
        it, part = listed.instance, self.name.lower()
        key, _, value = self.label.partition("=")
        return (
            (not part or part in it.id.lower() or part in it.labels.get("name", "").lower())
            and (self.host == listed.host if self.exact else self.host.lower() in listed.host.lower())
            and (not self.workload or self.workload.lower() in (it.workload or "").lower())
            and (not self.label or "label" in self.wrong or it.labels.get(key.strip()) == value.strip())
            and (self.only != "affected" or (listed.now is not None and sorting.is_affected(listed.now)))
            and (self.only != "unplaced" or not listed.host)
        )


@dataclass(frozen=True, slots=True)
class InstanceEntry:
    """One instance, ready to be shown; empty figures are not known."""

    name: str
    alias: str  # its label `name`, where that is another one
    host: str
    vcpus: int
    memory: str
    demand: str
    delivered: str
    contended: str
    throughput: str
    kept: chart.Bar | None
    level: str
    behind: str
    workload: str
    pending: bool


def listing(request: Request, cloud: CloudDep, number: PageNumber = 1) -> HTMLResponse:
    """All instances, the most affected first unless `sort` names another column."""
    order = Order.read(request.query_params, COLUMNS, _DEFAULT)
    now, inventory = cloud.now(), cloud.inventory()
    hosts = {host.host.id for host in now.hosts}
    chosen = InstanceFilter.read(request.query_params, hosts)
    every = list(_every(now, inventory, hosts))
    matching = [listed for listed in every if chosen.lets_through(listed)] if chosen.fields else every
    part = PageSlice.of(len(matching), number, AT_ONCE, _PATH, chosen.fields | {PARAMETER: order.text})
    ordered = order.first(part.end, matching, _VALUES[order.key], lambda listed: listed.instance.id)
    return page(
        request,
        "instances.html",
        status=422 if chosen.wrong else 200,
        degraded=now.degraded,
        filter=chosen,
        only=ONLY,
        every=len(every),
        rows=[_line(listed) for listed in part.cut(ordered)],
        headings=order.headings(COLUMNS, _PATH, chosen.fields),
        order=order.text,
        part=part,
    )


def _every(now: CloudNow, inventory: Inventory, hosts: Collection[str]) -> Iterator[ListedInstance]:
    """Those on hosts, pending ones included, then those of the inventory that are on none."""
    for host in now.hosts:
        for resident in host.residents:
            yield ListedInstance(resident.instance, host.host.id, resident)
    pending = {resident.instance.id for host in now.hosts for resident in host.residents if resident.pending}
    for instance in inventory.instances:
        if instance.host not in hosts and instance.id not in pending:
            yield ListedInstance(instance, "", None)


def _line(listed: ListedInstance) -> InstanceEntry:
    it, now = listed.instance, listed.now
    alias = it.labels.get("name", "")
    return InstanceEntry(
        name=it.id,
        alias="" if alias == it.id else alias,
        host=listed.host,
        vcpus=it.vcpus,
        memory=picture.memory(it.memory_mb),
        demand=_demand(it),
        delivered="" if now is None or now.delivered is None else _percent(now.delivered),
        contended="" if now is None or now.short is None else time_part(now.short),
        throughput="" if now is None else f"{now.expected:.2f}",
        kept=None if now is None else chart.kept_bar(now.expected, sorting.affected_level(now)),
        level="" if now is None else sorting.affected_level(now),
        behind=picture.FALLS_BEHIND if now is not None and now.falls_behind else "",
        workload=it.workload or "",
        pending=now is not None and now.pending,
    )


def _demand(it: Instance) -> str:
    demand = it.demand.get("cpu")
    if demand is None:
        return ""
    return f"{'' if demand.origin in _MEASURED else '≈ '}{demand.mean:.3g}"


def _percent(part: float) -> str:
    """A part of all; less than the whole is never rounded up to it."""
    if 0.9995 <= part < 1:
        return "> 99.9 %"
    return f"{100 * part:.1f} %" if 0.995 <= part < 1 else f"{100 * part:.0f} %"
