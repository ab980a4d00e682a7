"""Reads the members of a group: their workload's defaults, the group's changes, and a label that shows the changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lab.campaign.model import Member
from lab.errors import CampaignError
from lab.fields import Fields
from profiler.observed import NET_MODES, IsolationSettings, NetworkSettings

NONE = "none"  # removes a setting that the workload has


def read_load(fields: Fields, default: float) -> float:
    """Offered load, 1.0 = as much as the workload can do alone."""
    return fields.number("load", default, most=1.0)


def read_settings(fields: Fields, base: IsolationSettings) -> IsolationSettings:
    """Settings of a workload or member. Settings that are not named are those of `base`; `none` removes one."""
    weight = _limit(fields, "weight", base.weight, 65_535)
    if weight is not None and weight != int(weight):
        fields.wrong(fields.at("weight"), f"must be a whole number, not {weight:g}")
    return IsolationSettings(
        cap_percent=_limit(fields, "cap_percent", base.cap_percent, 1e5),
        weight=None if weight is None else int(weight),
        network=_network(fields, base.network),
        disk_limit_mb_s=_limit(fields, "disk_limit_mb_s", base.disk_limit_mb_s, 1e9),
    )


def read_members(
    top: Fields, place: str, entries: Any, members: Mapping[str, Member], changes: Mapping[int, Mapping[str, Any]],
    least: int = 2,
) -> tuple[Member, ...]:  # fmt: skip
    """A list of members; `changes` overrides fields of members by position, as crossed factors do."""
    if not isinstance(entries, list) or len(entries) < least:
        top.wrong(place, f"must be a list of at least {'two members' if least > 1 else 'one member'}")
    listed: list[Member] = []
    for position, entry in enumerate(entries):
        values = entry if isinstance(entry, dict) else {"workload": entry}
        fields = Fields(top.file, f"{place}[{position}]", {**values, **changes.get(position, {})})
        listed.append(_member(fields, members))
        fields.done()
    return tuple(listed)


def check_names(fields: Fields, name: str, chosen: Sequence[Any], known: Mapping[str, Any], where: str) -> list[str]:
    """Names that must all be known; CampaignError names the first that is not."""
    names = [str(entry) for entry in chosen]
    for entry in names:
        if entry not in known:
            fields.wrong(fields.at(name), f"names {entry[:40]!r}, which is not under {where}")
    return names


def _member(fields: Fields, members: Mapping[str, Member]) -> Member:
    name = fields.text("workload")
    if name not in members:
        fields.wrong(fields.at("workload"), f"{name[:40]!r} is not under workloads")
    base = members[name]
    changed = replace(base, load=read_load(fields, base.load), settings=read_settings(fields, base.settings))
    return replace(changed, label=_label(base, changed))


def _limit(fields: Fields, name: str, base: float | None, most: float) -> float | None:
    if not fields.has(name):
        return base
    return None if fields.raw(name) == NONE else fields.number(name, most=most)


def _network(fields: Fields, base: NetworkSettings | None) -> NetworkSettings | None:
    if not fields.has("network"):
        return base
    if fields.raw("network") == NONE:
        return None
    inner = fields.fields("network")
    mode = inner.choice("mode", NET_MODES)
    rate, ceil = inner.optional("rate_mbit", most=1e6), inner.optional("ceil_mbit", most=1e6)
    inner.done()
    try:
        return NetworkSettings(mode, rate, ceil)
    except ValueError as error:
        raise CampaignError(f"{inner.file}: {inner.place} {error}") from None


def _label(base: Member, changed: Member) -> str:
    """The workload's name, with what differs from its definition: `web-1k.load0.5.cap50`."""
    parts = [base.workload]
    if changed.load != base.load:
        parts.append(f"load{changed.load:g}")
    new, old = changed.settings, base.settings
    for name, value, defined in (
        ("cap", new.cap_percent, old.cap_percent),
        ("weight", new.weight, old.weight),
        ("disk", new.disk_limit_mb_s, old.disk_limit_mb_s),
    ):
        if value != defined:
            parts.append(f"no{name}" if value is None else f"{name}{value:g}")
    if new.network != old.network:
        parts.append("nonet" if new.network is None else _net_label(new.network))
    return ".".join(parts)


def _net_label(network: NetworkSettings) -> str:
    """`shared500`, with a ceil of its own `shared500-800`."""
    ceil = f"-{network.ceil_mbit:g}" if network.ceil_mbit is not None else ""
    return f"{network.mode}{network.rate_mbit or 0:g}{ceil}"
