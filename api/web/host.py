"""One host on a page: its instances, what is predicted of them, which instances slow which, and what was measured."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse

from advisor.domain import (
    FELT,
    NO_SCORES,
    STOPPED_AT,
    Histories,
    Host,
    HostDetail,
    HostMemory,
    HostNow,
    Instance,
    Slowing,
    cpu_map,
    settings_named,
    time_part,
)
from advisor.domain.rules import has_of, needed, violations
from api.html import picture
from api.html.render import page, to_page_of
from api.routes.common import CloudDep, InventoryDep, MaintenanceDep, ModelDep, PathName, TelemetryDep
from api.rows import joined
from api.web import chart, worth
from api.web.cloud import age, known_demand, labels_in_words
from api.web.instance import MOST, probe_rows
from profiler.host_kinds import PAGES_MB, TRAITS, pages_in_words
from profiler.observed import format_cpus

Span = Literal["1h", "6h", "24h"]
SPANS: Mapping[Span, str] = {  # a week of ten instances takes 5 s
    "1h": "the last hour",
    "6h": "the last six hours",
    "24h": "the last day",
}
MOST_PAIRS = 10
MOST_LISTED = 200  # instances on the page at all; GET /v1/instances?host= lists every one
LISTED = 20  # instances that are shown at once, the worst off; the others are folded
MOST_SQUARE = 12  # instances up to which a table of every instance against every instance can be read
_SHADES = (0.05, 0.1, 0.2)  # losses from which a cell is shaded darker


@dataclass(frozen=True, slots=True)
class InterferenceCell:
    """What one instance loses to one other: the figure, empty = less than FELT, and how dark the cell is (0-3)."""

    figure: str
    shade: int


@dataclass(frozen=True, slots=True)
class Losses:
    """What `name` would gain without each of the others, in the order of the residents; None = itself."""

    name: str
    cells: tuple[InterferenceCell | None, ...]


@dataclass(frozen=True, slots=True)
class SlowedPair:
    """What one instance would gain without one other, as a bar; the largest loss on the host fills it."""

    slowing: Slowing
    bar: chart.Bar


@dataclass(frozen=True, slots=True)
class HostedInstance:
    """One instance of the host, ready to be shown."""

    instance: Instance
    row: picture.IntervalRow
    settings: list[tuple[str, str]]
    pending: bool
    stopped: bool  # its agent no longer reports it


def host(
    request: Request,
    cloud: CloudDep,
    inventory: InventoryDep,
    telemetry: TelemetryDep,
    models: ModelDep,
    maintenance: MaintenanceDep,
    host: PathName,
    since: Span = "1h",
) -> HTMLResponse | RedirectResponse:
    """One host with its instances; a name of one that is not its id leads there."""
    known = inventory.find_host(host).id
    if known != host:
        return to_page_of(request, "hosts", known)
    detail, now, memory = cloud.host(host), cloud.now(), cloud.memory().get(host)
    histories = telemetry.histories(host=host, since=since)
    probed = telemetry.probes(host=host, instance="", limit=MOST)
    pairs = [pair for pair in detail.slowing if pair.loss >= FELT]
    residents = _residents(detail)
    rows = joined(residents, _figures)
    return page(
        request,
        "host.html",
        it=detail.now.host,
        degraded=detail.degraded,
        known_demand=known_demand([detail.now]),
        residents=rows,
        count=len(residents),
        cpus=cpu_map(detail.now.host, [resident.instance for resident in detail.now.residents]),
        others=sum(1 + len(group.others) for group in rows[LISTED:]),
        outside=sum(resident.row.outside for resident in residents),
        unlisted=max(len(detail.now.residents) - MOST_LISTED, 0),
        learned=now.model_version != "analytic",
        listed=LISTED,
        bars=chart.bars(detail.now.pressure, detail.now.cpu_peak),
        maintenance=maintenance.of(host),
        facts=[*_facts(detail.now), *_memory_facts(memory)],
        memory_words=memory.words if memory else "",
        square=_square(detail) if pairs else [],
        pairs=[SlowedPair(pair, chart.kept_bar(pair.loss / pairs[0].loss, "fair")) for pair in pairs[:MOST_PAIRS]],
        more=max(len(pairs) - MOST_PAIRS, 0),
        age=age(detail.now, cloud.clock()),
        alarms=[alarm for alarm in cloud.alarms() if alarm.host == host],
        probes=probe_rows(probed.items, cloud.clock(), models.get(now.model_version)),
        elsewhere=histories.elsewhere,
        charts=_charts(histories, detail),
        scores=worth.score_pane(cloud.scores().hosts.get(host, NO_SCORES), cloud.score_history(host)),
        spans=SPANS,
        since=since,
    )


def _charts(histories: Histories, detail: HostDetail) -> tuple[chart.Chart, ...]:
    """Measured shares of CPU time beside predicted ones, then the metrics."""
    names = chart.ranked(histories)
    expected = {effect.instance: effect.cpu.share for effect in detail.effects if effect.cpu}
    drawn = {name: share for name, share in expected.items() if names.get(name, chart.MOST_LINES) < chart.MOST_LINES}
    shares = chart.shares(histories, names, drawn)
    return (*([shares] if shares else []), *chart.charts(histories, names))


def _residents(detail: HostDetail) -> list[HostedInstance]:
    return [
        HostedInstance(
            instance=resident.instance,
            row=picture.row(effect, new_vm=False, limit=resident.instance.min_throughput_ratio),
            settings=settings_named(resident.instance.settings),
            pending=resident.pending,
            stopped=STOPPED_AT in resident.instance.labels,
        )
        for resident, effect in islice(zip(detail.now.residents, detail.effects, strict=True), MOST_LISTED)
    ]


def _figures(resident: HostedInstance) -> Hashable:
    """All that its row shows, but for the name."""
    row, it = resident.row, resident.instance
    return (
        (row.figure, row.interval, row.limit, row.level, row.latency, row.short, row.outside),
        (picture.size(it), it.workload, tuple(resident.settings), resident.pending, resident.stopped),
    )


def _square(detail: HostDetail) -> list[Losses]:
    """Instances that slow another one or are slowed; empty where these are too many to be read as a table."""
    losses = {(pair.victim, pair.neighbour): pair.loss for pair in detail.slowing}
    felt = {name for pair in detail.slowing if pair.loss >= FELT for name in (pair.victim, pair.neighbour)}
    names = [resident.instance.id for resident in detail.now.residents if resident.instance.id in felt]
    if len(names) > MOST_SQUARE:
        return []
    return [
        Losses(victim, tuple(None if name == victim else _cell(losses.get((victim, name), 0.0)) for name in names))
        for victim in names
    ]


def _cell(loss: float) -> InterferenceCell:
    shade = sum(round(loss, 2) >= edge for edge in _SHADES)
    return InterferenceCell(f"{loss:.2f}" if loss >= FELT else "", shade)


def _core_facts(host: Host) -> list[tuple[str, str]]:
    """How fast its cores are, as far as it is known."""
    facts = []
    if host.cpu_mhz:
        turbo = f", at most {host.turbo_mhz:,.0f}" if host.turbo_mhz else ""
        facts.append(("Clock", f"{host.cpu_mhz:,.0f}{turbo} MHz"))
    if host.second_thread is not None:
        facts.append(("A second hyperthread adds", f"{host.second_thread:.0%} of a core"))
    if host.disk_iops is not None:
        facts.append(("Disk requests", f"{host.disk_iops:,.0f} per second"))
    return facts


def _memory_facts(memory: HostMemory | None) -> list[tuple[str, str]]:
    """What its agent measures of its memory."""
    if memory is None:
        return []
    sizes = (
        ("Memory available", memory.available_mb),
        ("In swap", memory.swap_mb),
        ("Saved by merged pages", memory.ksm_mb),
    )
    facts = [(name, f"{size:,.0f} MB") for name, size in sizes if size]
    if memory.stalled is not None:
        facts.append(("Stalls for memory", f"{memory.stalled:.1f} % of the time"))
    if memory.huge_mb:
        facts.append(("Huge pages", f"{memory.huge_free_mb or 0:,.0f} of {memory.huge_mb:,.0f} MB free"))
    return facts


def _huge_pages(host: Host, instances: Sequence[Instance]) -> list[tuple[str, str]]:
    """How much of each pool of huge pages its instances need; no other memory is made of these."""
    has, needs = has_of(host), needed(instances)
    pools = [name for name in PAGES_MB if name in has or name in needs]
    return [
        (f"Huge pages of {pages_in_words(name)}", f"{needs[name]:,.0f} of {has.get(name, 0.0):,.0f} needed")
        for name in pools
    ]


def _facts(now: HostNow) -> list[tuple[str, str]]:
    """What the host is, and how much of it is promised to instances."""
    host, instances = now.host, [resident.instance for resident in now.residents]
    vcpus, memory_mb = sum(instance.vcpus for instance in instances), sum(one.ordinary_memory_mb for one in instances)
    facts = [
        ("Kind", host.kind),
        ("Instances", str(len(instances))),
        ("vCPUs on pCPUs", f"{vcpus} on {host.pcpus}"),
        ("Memory", f"{memory_mb:,.0f} of {host.ordinary_memory_mb:,.0f} MB"),
        *_huge_pages(host, instances),
    ]
    if host.cpu_ids:
        facts.append(("Numbers of pCPUs", host.shown_cpus))
    if host.isolated_cpus:
        facts.append(("Isolated pCPUs", format_cpus(host.isolated_cpus)))
    if host.dedicated_cpus:
        assumed = " (assumed)" if host.labels.get("assumed") == "dedicated_cpus" else ""
        facts.append(("Dedicated pCPUs", f"{format_cpus(host.dedicated_cpus)}{assumed}"))
    if now.crowded is not None:
        facts.append(("More vCPUs ready than CPUs", f"{time_part(now.crowded)} of the time"))
    if TRAITS[host.kind].has_driver_domain:
        facts.append(
            ("Driver domain on pCPUs", format_cpus(frozenset(host.driver_cpus)) if host.driver_cpus else "any")
        )
    if host.own_cpus:
        facts.append(("Its own work", f"{host.own_cpus:.1f} CPUs outside of instances"))
    facts += _core_facts(host)
    if host.nic_mbit:
        facts.append(("NIC", f"{host.nic_mbit:,.0f} Mbit/s"))
    if host.platform:
        facts.append(("Platform", host.platform))
    if broken := [violation.text for violation in violations(host, instances)]:
        facts.append(("Rules that do not hold", "; ".join(broken)))
    if "disagreement" in host.labels:
        facts.append(("Sources disagree", host.labels["disagreement"]))
    if "left_out" in host.labels:
        facts.append(("Cannot be read", host.labels["left_out"]))
    if labels := labels_in_words(host):
        facts.append(("Labels", labels))
    return facts
