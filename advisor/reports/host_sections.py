"""Sections about hosts and their instances: pressure, interference, throughput, and every instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.domain import Effect, Plan, waiting_told
from advisor.explanation.interference_attribution import AttributedLoss
from advisor.reports import plan_pictures as pictures
from advisor.reports import plan_view
from advisor.reports.number_format import HARMED, PRESSED, count, percent, scale
from advisor.reports.parts import Column, HeatMap, Picture, Section, Table
from advisor.reports.plan_background import Background, Pressures

RESOURCES = {
    "cpu": "CPU",
    "driver_domain": "driver domain",
    "nic": "network",
    "disk": "disk",
    "memory": "memory bandwidth",
}
MAX_HOSTS = 40  # rows of the heat map
MOST_INSTANCES = 400
FEW_ROWS = 25  # on the page, where nothing happens to more of them
MOST_PAIRS = 50  # of a victim and a neighbour
FELT = 0.01  # T/B: neighbours who take less from each other are not shown one by one


def pressure(background: Background, salt: str) -> Section:
    """Hosts by resource, highest pressure first; before and after where they differ."""
    before, after = background.before, background.after
    if not after and not before:
        return Section("pressure", "Pressure on the hosts")
    same = before == after
    clouds = {"now": after} if same else {"before": before, "after": after}
    names = sorted({*before, *after}, key=lambda name: (-_most(name, before, after), name))
    columns = [Column("host", "Host", "name")]
    columns += [
        Column(resource if same else f"{resource}_{cloud}", title if same else cloud, "pressure", "" if same else title)
        for resource, title in RESOURCES.items()
        for cloud in clouds
    ]
    rows = [
        (name, *(by_host.get(name, {}).get(resource) for resource in RESOURCES for by_host in clouds.values()))
        for name in names
    ]
    counts = {
        title if same else f"{title}, {cloud}": pictures.by_band([of.get(resource) for of in by_host.values()])
        for resource, title in RESOURCES.items()
        for cloud, by_host in clouds.items()
    }
    counts = {name: by_host for name, by_host in counts.items() if sum(by_host)}
    drawn = [Picture("Host load", pictures.pressure(counts, salt), broad=True)] if counts else []
    heads = [Column(f"band_{at}", words, "count") for at, words in enumerate(pictures.RANGES)]
    totals = [(name, *by_host) for name, by_host in counts.items()]
    return Section(
        "pressure",
        "Pressure on the hosts",
        "Demand over capacity of each resource, the most pressed hosts first. Above 100 % somebody must wait; a dash: "
        "the capacity is not known, or there is no such resource.",
        pictures=drawn if len(names) > 1 else (),
        key=scale(PRESSED, percent),
        tables=[
            Table("pressure", "Hosts by resources", columns, rows, most=MAX_HOSTS, look="matrix"),
            Table(
                "pressure_bands", "Hosts in each band", (Column("resource", "", "name"), *heads), totals, look="folded"
            ),
        ],
    )


def _most(name: str, *clouds: Pressures) -> float:
    return max((value for cloud in clouds for value in cloud.get(name, {}).values() if value is not None), default=0.0)


def interference(losses: Sequence[AttributedLoss]) -> Section:
    """A heat map per host, victims by neighbours, and all pairs in a table."""
    by_host: dict[str, list[AttributedLoss]] = {}
    for loss in losses:
        by_host.setdefault(loss.host, []).append(loss)
    columns = (
        Column("host", "Host", "name"), Column("victim", "Victim"), Column("neighbour", "Neighbour"),
        Column("ratio", "T/B", "ratio"), Column("without", "Without that neighbour", "ratio"),
        Column("taken", "Taken", "harm"),
    )  # fmt: skip
    by_host = {host: felt for host, pairs in by_host.items() if (felt := _felt(pairs))}
    rows = sorted(
        ((loss.host, loss.victim, loss.neighbour, loss.ratio, loss.without, loss.taken) for loss in losses),
        key=lambda row: (-row[5], row[:3]),
    )
    seen = sum(abs(row[5]) >= FELT for row in rows)
    most = min(max(seen, FEW_ROWS), MOST_PAIRS) if seen else 1
    return Section(
        "harm",
        "Who hurts whom",
        "What the neighbour of a column takes from the instance of a row, in percentage points of T/B: its predicted "
        "T/B without that neighbour, and as it is. Of the hosts with the worst-off instances "
        + (
            f"{count(len(by_host), 'host')} {'is' if len(by_host) == 1 else 'are'} shown; on the others no neighbour "
            "takes a point."
            if by_host
            else "there is none on which a neighbour takes a point."
        ),
        key=scale(HARMED, lambda value: f"{100 * value:.0f}") if by_host else (),
        matrices=[_heat_map(host, pairs) for host, pairs in by_host.items()],
        tables=[Table("harm", "All pairs, the worst first", columns, rows, most=most, look="folded")],
    ) if losses else Section("harm", "Who hurts whom")  # fmt: skip


def _felt(pairs: Sequence[AttributedLoss]) -> list[AttributedLoss]:
    """The pairs among those who lose a point by one neighbour, or who take one."""
    felt = [pair for pair in pairs if abs(pair.taken) >= FELT]
    involved = {name for pair in felt for name in (pair.victim, pair.neighbour)}
    return [pair for pair in pairs if {pair.victim, pair.neighbour} <= involved]


def _heat_map(host: str, pairs: Sequence[AttributedLoss]) -> HeatMap:
    names = sorted({pair.victim for pair in pairs})
    taken: Mapping[tuple[str, str], float] = {(pair.victim, pair.neighbour): pair.taken for pair in pairs}
    return HeatMap(host, names, [(name, [taken.get((name, other)) for other in names]) for name in names], "harm")


def throughput(hosts: Sequence[plan_view.HostRows], plan: Plan) -> Section:
    """A picture of each host that the plan changes, else of every used host; the worst where there are many."""
    chosen = plan_view.worth_a_picture(hosts, plan)
    left_out = sum(1 for host in hosts if host.rows) - len(chosen)
    more = (
        f" {left_out:,} more host{'' if left_out == 1 else 's'} with instances stand in the last table."
        if left_out
        else ""
    )
    return Section(
        "throughput",
        "Predicted throughput on each host",
        "In percent of what the instance does alone; the line is the 90 % interval. Hollow: before the plan; filled: "
        f"after it; green: comes here; red: its limit.{more}",
        pictures=[
            Picture(host.name, pictures.throughput(host, plan.id), "" if host.changed else "unchanged")
            for host in chosen
        ],
    ) if chosen else Section("throughput", "")  # fmt: skip


def _waiting(effect: Effect | None) -> tuple[float | None, ...]:
    """Expected latency with its edges, and expected jitter; an overloaded instance has none that is finite."""
    if effect is None:
        return None, None, None, None
    late = waiting_told(effect, effect.latency_ratio)
    jitter = effect.jitter_ratio.expected if effect.jitter_ratio and not effect.overloaded else None
    return late.expected, late.lower, late.upper, jitter


def instances(hosts: Sequence[plan_view.HostRows], plan: Plan) -> Section:
    """Every instance with its predictions; those that a plan changes first, then the worst-off."""
    rows: list[tuple[Any, ...]] = [
        (
            row.instance, host.name, _happens(row), row.before, row.after.throughput_ratio if row.after else None,
            None if row.comes or row.goes else row.change, row.limit.throughput,
            *_waiting(row.after),
            row.after.cpu.short if row.after and row.after.cpu else None,
            "yes" if row.after and row.after.outside_training else None,
        )
        for host in hosts for row in host.rows
    ]  # fmt: skip
    rows.sort(key=lambda row: (not row[2], row[4].expected if row[4] else 2.0, row[0], row[1]))
    columns = (
        Column("instance", "Instance", "name"), Column("host", "Host"), Column("happens", ""),
        Column("before", "T/B before", "band"), Column("after", "T/B after", "band"),
        Column("change", "Change, points", "points"), Column("limit", "Limit", "ratio"),
        Column("latency", "Latency", "times"), Column("latency_lower", "at least", "times"),
        Column("latency_upper", "at most", "latest"), Column("jitter", "Jitter", "times"),
        Column("short", "Short of CPU", "share"),
        Column("outside_training", "Outside training"),
    )  # fmt: skip
    empty = sum(1 for host in hosts if not host.rows)
    note = (
        f"A limit is the instance's own, or {percent(plan.request.keep_ratio)} where it has none. Latency and jitter "
        "are as many times what the instance has alone. Who is short of CPU gets less of it than it wants in that part "
        "of the time." + (f" {count(empty, 'host')} {'is' if empty == 1 else 'are'} empty." if empty else "")
    )
    told = sum(
        (bool(row[2]) and plan.request.kind != "capacity")
        or (row[4] is not None and row[4].expected < 1 - plan_view.SLOWED)
        for row in rows
    )
    most = min(max(told, FEW_ROWS), MOST_INSTANCES)
    table = Table("instances", "Those that something happens to first, then the worst-off", columns, rows, most=most)
    return Section("instances", "Every instance", note, tables=[table])


def _happens(row: plan_view.InstanceRow) -> str:
    what = "comes" if row.comes else "goes" if row.goes else ""
    broken = "below its limit" if row.below_limit else ""
    return ", ".join(text for text in (what, broken) if text)
