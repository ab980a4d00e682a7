"""What a campaign is: workloads, who shares the host, where, how long, how often; reads CAMPAIGN.yaml, runs nothing."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from profiler.lab.errors import CampaignError
from profiler.lab.fields import Fields
from profiler.lab.workloads import KINDS, Cpu, Disk, Memory, Web, Workload
from profiler.lab.workloads.disk import ACCESSES, Access
from profiler.observed import IsolationSettings, NetMode, NetworkSettings, check_id, parse_cpus

Cpus = tuple[int, ...]
_MODES: dict[str, NetMode] = {"none": "none", "shared": "shared", "dedicated": "dedicated"}


@dataclass(frozen=True, slots=True)
class Member:
    """One participant of a group: a named workload with load and settings; `label` tells variants apart."""

    workload: str
    label: str
    load: float
    vcpus: int
    settings: IsolationSettings


@dataclass(frozen=True, slots=True)
class PinningForm:
    """Where the members run: member i on `cpus[i % len]`, its load generator on `clients[i % len]`, None = with it."""

    name: str
    cpus: tuple[Cpus, ...]
    clients: tuple[Cpus, ...] | None

    def place(self, position: int) -> tuple[Cpus, Cpus]:
        """CPUs of the member at this position, and of its load generator."""
        own = self.cpus[position % len(self.cpus)]
        return own, own if self.clients is None else self.clients[position % len(self.clients)]


@dataclass(frozen=True, slots=True)
class Group:
    """Members that share the host, in one pinning form."""

    members: tuple[Member, ...]
    pinning: PinningForm


@dataclass(frozen=True, slots=True)
class Campaign:
    """Everything that is to be measured. `fingerprint` changes when earlier runs could no longer be compared."""

    name: str
    platform: str
    seconds: int
    warmup_s: float
    rounds: int
    seed: int
    link_mbit: float | None
    notes: str
    licence: str
    workloads: Mapping[str, Workload]
    groups: tuple[Group, ...]
    pinnings: tuple[PinningForm, ...]
    fingerprint: str

    @property
    def cpus(self) -> frozenset[int]:
        """All CPUs that are named anywhere."""
        sets = [cpus for form in self.pinnings for cpus in (*form.cpus, *(form.clients or ()))]
        return frozenset(cpu for cpus in sets for cpu in cpus)


def read_campaign(path: Path) -> Campaign:
    """Read a campaign file; CampaignError names the file, the field or line, and the reason."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CampaignError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CampaignError(f"{path} is not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise CampaignError(f"{path}{line}: not valid YAML ({getattr(error, 'problem', None) or error})") from None
    return _campaign(Fields(str(path), "", document), document)


def _campaign(top: Fields, document: Mapping[str, Any]) -> Campaign:
    members = {name: _workload(fields) for name, fields in _named(top, "workloads")}
    forms = {name: _pinning(name, fields) for name, fields in _named(top, "pinnings")}
    defaults = {name: member for name, (_, member) in members.items()}
    groups = _groups(top, defaults, forms)
    campaign = Campaign(
        name=_identifier(top, "name", None),
        platform=_identifier(top, "platform", top.text("name")),
        seconds=top.whole("seconds", 5, most=86_400),
        warmup_s=top.number("warmup_s", 1.0, above=-1e-9, most=3600),
        rounds=top.whole("rounds", 5, most=10_000),
        seed=top.whole("seed", 1, least=0, most=2**31),
        link_mbit=top.optional("link_mbit", most=1e6),
        notes=top.text("notes", " ").strip(),
        licence=top.text("licence", "CC-BY-4.0"),
        workloads={name: workload for name, (workload, _) in members.items()},
        groups=groups,
        pinnings=tuple(forms.values()),
        fingerprint=_fingerprint(document),
    )
    top.done()
    return campaign


def _fingerprint(document: Mapping[str, Any]) -> str:
    """Digest of all that a measured value depends on; more rounds or other notes leave finished runs valid."""
    relevant = {key: value for key, value in document.items() if key not in ("rounds", "notes", "licence", "name")}
    return hashlib.sha256(yaml.safe_dump(relevant, sort_keys=True).encode()).hexdigest()[:16]


def _identifier(fields: Fields, name: str, default: str | None) -> str:
    value = fields.text(name, default)
    try:
        return check_id(value, name)
    except ValueError as error:
        raise CampaignError(f"{fields.file}: {error}") from None


def _named(top: Fields, name: str) -> list[tuple[str, Fields]]:
    """The entries of a mapping whose names are the user's own."""
    entries = list(top.fields(name).entries())
    if not entries:
        top.wrong(name, "must name at least one")
    for key, _ in entries:
        try:
            check_id(key, f"{name} name")
        except ValueError as error:
            top.wrong(name, f"has a bad name: {error}")
        if ":" in key:
            top.wrong(f"{name}.{key}", "must not hold a colon, which separates names in run ids")
    return [(key, Fields(top.file, f"{name}.{key}", entry)) for key, entry in entries]


def _workload(fields: Fields) -> tuple[Workload, Member]:
    name = fields.place.removeprefix("workloads.")
    kind = fields.choice("kind", tuple(KINDS))
    workload: Workload
    if kind == Web.kind:
        size_kb = fields.whole("size_kb", 1, most=1 << 20)
        workload = Web(size_kb, fields.whole("connections", 16, most=1000))
    elif kind == Cpu.kind:
        workload = Cpu(fields.whole("max_prime", 10_000))
    elif kind == Memory.kind:
        workload = Memory(fields.whole("block_mb", 64, most=1 << 20))
    else:
        choice = fields.choice("access", ACCESSES, "randread")
        access: Access = next(known for known in ACCESSES if known == choice)
        workload = Disk(fields.whole("file_mb", 256, least=8), fields.whole("block_kb", 64, most=8192), access)
    load, vcpus, settings = _load(fields, 1.0), fields.whole("vcpus", 1, most=4096), _settings(fields, None)
    fields.done()
    return workload, Member(name, name, load, vcpus, settings)


def _load(fields: Fields, default: float) -> float:
    return fields.number("load", default, most=1.0)


def _settings(fields: Fields, default: IsolationSettings | None) -> IsolationSettings:
    base = default or IsolationSettings()
    weight = fields.whole("weight", most=65_535) if fields.has("weight") else base.weight
    cap = fields.optional("cap_percent", most=1e5) or base.cap_percent
    disk = fields.optional("disk_limit_mb_s") or base.disk_limit_mb_s
    network = _network(fields.fields("network")) if fields.has("network") else base.network
    return IsolationSettings(cap_percent=cap, weight=weight, network=network, disk_limit_mb_s=disk)


def _network(fields: Fields) -> NetworkSettings | None:
    mode = _MODES[fields.choice("mode", tuple(_MODES))]
    rate, ceil = fields.optional("rate_mbit", most=1e6), fields.optional("ceil_mbit", most=1e6)
    fields.done()
    try:
        return NetworkSettings(mode, rate, ceil)
    except ValueError as error:
        raise CampaignError(f"{fields.file}: {fields.place} {error}") from None


def _pinning(name: str, fields: Fields) -> PinningForm:
    cpus = tuple(_cpus(fields, "cpus", entry) for entry in fields.sequence("cpus"))
    clients = fields.raw("clients", "own")
    fields.done()
    if clients == "own":
        return PinningForm(name, cpus, None)
    entries = clients if isinstance(clients, list) else [clients]
    return PinningForm(name, cpus, tuple(_cpus(fields, "clients", entry) for entry in entries))


def _cpus(fields: Fields, name: str, entry: Any) -> Cpus:
    try:
        return parse_cpus(str(entry))
    except ValueError as error:
        raise CampaignError(f"{fields.file}: {fields.at(name)} {error} (write CPU lists such as 0 or 0-1)") from None


def _groups(top: Fields, members: Mapping[str, Member], forms: Mapping[str, PinningForm]) -> tuple[Group, ...]:
    groups: list[Group] = []
    pairs = top.raw("pairs", "none" if top.has("groups") else "all")
    chosen: list[tuple[Member, ...]]
    if pairs == "all":
        chosen = list(itertools.combinations_with_replacement(members.values(), 2))
    elif pairs == "none":
        chosen = []
    else:
        chosen = [tuple(_members(top, f"pairs[{i}]", entry, members)) for i, entry in enumerate(top.sequence("pairs"))]
    groups += [Group(pair, form) for form in forms.values() for pair in chosen]
    for index, entry in enumerate(top.sequence("groups") if top.has("groups") else []):
        fields = Fields(top.file, f"groups[{index}]", entry)
        listed = tuple(_members(top, f"groups[{index}].members", fields.sequence("members"), members))
        names = [str(name) for name in fields.sequence("pinnings", list(forms))]
        unknown = [name for name in names if name not in forms]
        if unknown:
            fields.wrong(fields.at("pinnings"), f"names {unknown[0]!r}, which is not under pinnings")
        groups += [Group(listed, forms[name]) for name in names]
        fields.done()
    return tuple(dict.fromkeys(groups))


def _members(top: Fields, place: str, entries: Any, members: Mapping[str, Member]) -> list[Member]:
    if not isinstance(entries, list) or len(entries) < 2:
        top.wrong(place, "must be a list of at least two members")
    found: list[Member] = []
    for position, entry in enumerate(entries):
        fields = Fields(top.file, f"{place}[{position}]", entry if isinstance(entry, dict) else {"workload": entry})
        name = fields.text("workload")
        if name not in members:
            fields.wrong(fields.at("workload"), f"{name[:40]!r} is not under workloads")
        base = members[name]
        changed = replace(base, load=_load(fields, base.load), settings=_settings(fields, base.settings))
        found.append(replace(changed, label=_label(base, changed)))
        fields.done()
    return found


def _label(base: Member, changed: Member) -> str:
    """The workload's name, with what differs from its definition: `web-1k.load0.5.cap50`."""
    parts = [base.workload]
    if changed.load != base.load:
        parts.append(f"load{changed.load:g}")
    new, old = changed.settings, base.settings
    if new.cap_percent != old.cap_percent:
        parts.append(f"cap{new.cap_percent:g}")
    if new.weight != old.weight:
        parts.append(f"weight{new.weight}")
    if new.disk_limit_mb_s != old.disk_limit_mb_s:
        parts.append(f"disk{new.disk_limit_mb_s:g}")
    if new.network != old.network and new.network is not None:
        parts.append(f"{new.network.mode}{new.network.rate_mbit or 0:g}")
    return ".".join(parts)
