"""Reads CAMPAIGN.yaml: durations, repeats, workloads, pinning forms and groups."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml

from lab.campaign.groups import read_groups
from lab.campaign.members import read_load, read_settings
from lab.campaign.model import (
    Accelerator,
    Backing,
    Campaign,
    Cpus,
    EmulatedXen,
    GuestSettings,
    Member,
    OnOff,
    PinningForm,
    Repeats,
    Scheduler,
    Temporal,
    Vhost,
    Volume,
)
from lab.errors import CampaignError
from lab.fields import Fields
from lab.workloads import KINDS, Workload
from profiler.files import MEGABYTE, load_yaml
from profiler.observed import IsolationSettings, check_id, parse_cpus

# When these fields change, finished runs stay comparable.
_FREE = ("rounds", "most_rounds", "narrow", "most_minutes", "notes", "licence", "learn", "hidden", "name")
MOST_ON_OFF = 4  # members: 15 states
MOST_ROUTERS = 8  # in a row before the generators
_ENOUGH_ROUNDS = 30  # the default limit of adaptive repeats: intervals of medians hardly shrink beyond


def read_campaign(path: Path) -> Campaign:
    """Read a campaign file; CampaignError names the file, the field or line, and the reason."""
    try:
        document = load_yaml(path, MEGABYTE)
    except OSError as error:
        raise CampaignError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CampaignError(f"{path} is not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise CampaignError(f"{path}{line}: not valid YAML ({getattr(error, 'problem', None) or error})") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        # PyYAML lets these through for values that it cannot build, such as the 99th of a month, and for deep nesting
        raise CampaignError(f"{path} holds a value that cannot be read: {error}") from None
    return _campaign(Fields(str(path), "", document), document)


def _campaign(top: Fields, document: Mapping[str, Any]) -> Campaign:
    defined = {name: _workload(fields) for name, fields in _named(top, "workloads")}
    members = {name: member for name, (_, member) in defined.items()}
    forms = {name: _pinning(name, fields) for name, fields in _named(top, "pinnings")}
    seed = top.whole("seed", 1, least=0, most=2**31)
    warmup_s = top.number("warmup_s", 1.0, least=0, most=3600)
    campaign = Campaign(
        name=_identifier(top, "name", None),
        platform=_identifier(top, "platform", top.text("name")),
        seconds=top.whole("seconds", 5, most=86_400),
        warmup_s=warmup_s,
        repeats=_repeats(top),
        seed=seed,
        link_mbit=top.optional("link_mbit", most=1e6),
        notes=top.text("notes", " ").strip(),
        licence=top.text("licence", "CC-BY-4.0"),
        learn=top.flag("learn", True),
        hidden=top.flag("hidden", False),
        workloads={name: workload for name, (workload, _) in defined.items()},
        members=members,
        groups=read_groups(top, members, forms, seed),
        pinnings=tuple(forms.values()),
        fingerprint=_fingerprint(document),
        instances=top.choice("instances", get_args(Backing), "container"),
        guests=_guests(top.fields("guests")),
        temporal=_temporal(top),
        warmup_most_s=top.number("warmup_most_s", warmup_s, least=0, most=3600),
        line_mbit=top.optional("line_mbit", most=1e6),
        queue_packets=top.whole("queue_packets", 1000),
        routers=top.whole("routers", 0, least=0, most=MOST_ROUTERS),
        volume=_volume(top),
        host_cap_percent=top.optional("host_cap_percent", most=1e6),
        on_off=_on_off(top, members),
        emulated=_emulated(top),
    )
    top.done()
    if campaign.warmup_most_s < warmup_s:
        top.wrong("warmup_most_s", f"must not be below warmup_s, which is {warmup_s:g}")
    _check_members(top, campaign)
    _check_on_off(top, campaign)
    if campaign.instances != "container":
        for name in ("volume", "host_cap_percent", "routers"):
            if top.has(name):
                top.wrong(name, "needs instances: container")
    return campaign


def _check_members(top: Fields, campaign: Campaign) -> None:
    """Refuse different members with the same label (their runs would be mixed up), and part loads of rateless work."""
    by_label: dict[str, Member] = {}
    for member in (*campaign.members.values(), *(member for group in campaign.groups for member in group.members)):
        if by_label.setdefault(member.label, member) != member:
            top.wrong("groups", f"make two different members that would both be called {member.label!r}")
        workload = campaign.workloads[member.workload]
        if member.load < 1 and not workload.takes_rate:
            reason = f"has load {member.load:g}, but work of kind {workload.kind} cannot be asked for at a rate"
            top.wrong(f"workloads.{member.workload}", reason)


def _fingerprint(document: Mapping[str, Any]) -> str:
    """Digest of all that a measured value depends on."""
    relevant = {key: value for key, value in document.items() if key not in _FREE}
    return hashlib.sha256(yaml.safe_dump(relevant, sort_keys=True).encode()).hexdigest()[:16]


def _repeats(top: Fields) -> Repeats:
    least = top.whole("rounds", 5, most=10_000)
    narrow = top.number("narrow", most=1.0) if top.has("narrow") else None
    most = top.whole("most_rounds", max(least, _ENOUGH_ROUNDS) if narrow else least, most=10_000)
    if most < least:
        top.wrong("most_rounds", f"must not be below rounds, which is {least}")
    if narrow is None and top.has("most_rounds"):
        top.wrong("most_rounds", "needs narrow, the width of intervals at which no further round is needed")
    return Repeats(least, most, narrow, top.optional("most_minutes", most=1e6))


def _volume(top: Fields) -> Volume | None:
    if not top.has("volume"):
        return None
    fields = top.fields("volume")
    # The daemon counts whole bytes and requests, and takes 0 for no limit.
    requests_s = fields.number("requests_s", least=1, most=1e7) if fields.has("requests_s") else None
    volume = Volume(fields.number("mb_s", least=0.01, most=1e5), requests_s)
    fields.done()
    return volume


def _temporal(top: Fields) -> Temporal | None:
    if not top.has("temporal"):
        return None
    if top.has("narrow"):
        top.wrong("temporal", "and narrow exclude each other: a time grid has as many rounds as fit")
    fields = top.fields("temporal")
    temporal = Temporal(fields.number("every_min", most=100_000), fields.number("hours", most=100_000))
    fields.done()
    if temporal.slots > 100_000:
        top.wrong("temporal", "has more than 100000 rounds")
    return temporal


def _on_off(top: Fields, members: Mapping[str, Member]) -> OnOff | None:
    if not top.has("on_off"):
        return None
    fields = top.fields("on_off")
    beside = fields.text("beside", next(iter(members)))
    if beside not in members:
        fields.wrong(fields.at("beside"), f"{beside[:40]!r} is not under workloads")
    if members[beside].load < 1:
        fields.wrong(fields.at("beside"), f"{beside!r} must be a workload at full load")
    dwell = fields.whole("dwell_ms", least=20, most=10_000) if fields.has("dwell_ms") else None
    guard = fields.whole("guard_ms", least=0, most=5_000) if fields.has("guard_ms") else None
    fill_idle = fields.flag("fill_idle", True)
    fields.done()
    if (dwell is None) != (guard is None):
        fields.wrong(fields.place, "needs dwell_ms and guard_ms, or neither, and then both are found by measuring")
    if dwell is not None and guard is not None and guard > dwell / 2:
        fields.wrong(fields.at("guard_ms"), "must be at most half of dwell_ms")
    return OnOff(beside, dwell, guard, fill_idle)


def _check_on_off(top: Fields, campaign: Campaign) -> None:
    """Refuse what cannot be frozen, has too many states, or shows no progress while it runs."""
    if campaign.on_off is None:
        return
    if campaign.instances != "container" and campaign.emulated is None:
        top.wrong("on_off", "needs instances: container, whose groups can be frozen, or an emulated Xen machine")
    if campaign.temporal is not None:
        top.wrong("temporal", "and on_off exclude each other: a run on/off needs no time grid")
    for group in campaign.groups:
        if len(group.members) > MOST_ON_OFF:
            top.wrong("groups", f"have more than {MOST_ON_OFF} members, whose states on/off would be too many")
        for member in group.members:
            workload = campaign.workloads[member.workload]
            if campaign.emulated is None and (workload.progress is None or workload.fixed):
                reason = f"is of kind {workload.kind}, which shows no progress while it runs: measure it without on_off"
                top.wrong(f"workloads.{member.workload}", reason)


def _guests(fields: Fields) -> GuestSettings:
    default = GuestSettings()
    guests = GuestSettings(
        fields.whole("memory_mb", default.memory_mb, least=32),
        fields.choice("accelerator", get_args(Accelerator), default.accelerator),
        fields.choice("vhost", get_args(Vhost), default.vhost),
    )
    fields.done()
    return guests


def _emulated(top: Fields) -> EmulatedXen | None:
    if not top.has("emulated"):
        return None
    if not top.has("on_off"):
        top.wrong("emulated", "needs on_off with dwell_ms and guard_ms: in blocks an emulated machine is too noisy")
    fields, default = top.fields("emulated"), EmulatedXen()
    emulated = EmulatedXen(
        fields.whole("pcpus", default.pcpus, most=64),
        fields.whole("dom0_vcpus", default.dom0_vcpus, most=64),
        fields.whole("memory_mb", default.memory_mb, least=1024),
        fields.choice("scheduler", get_args(Scheduler), default.scheduler),
        fields.optional("pcpu_percent", most=100),
        fields.number("metrics_s", default.metrics_s, least=0, most=60),
        fields.flag("kernel_tables", default.kernel_tables),
    )
    fields.done()
    return emulated


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
    workload = KINDS[fields.choice("kind", tuple(KINDS))].of(fields)
    settings = read_settings(fields, IsolationSettings())
    member = Member(name, name, read_load(fields, 1.0), fields.whole("vcpus", 1, most=4096), settings)
    fields.done()
    return workload, member


def _pinning(name: str, fields: Fields) -> PinningForm:
    cpus = tuple(_cpus(fields, "cpus", entry) for entry in fields.sequence("cpus"))
    clients = fields.raw("clients", "own")
    driver = _cpus(fields, "driver", fields.raw("driver")) if fields.has("driver") else None
    fields.done()
    if clients == "own":
        return PinningForm(name, cpus, None, driver)
    entries = fields.sequence("clients") if isinstance(clients, list) else [clients]
    return PinningForm(name, cpus, tuple(_cpus(fields, "clients", entry) for entry in entries), driver)


def _cpus(fields: Fields, name: str, entry: Any) -> Cpus:
    try:
        return parse_cpus(str(entry))
    except ValueError as error:
        raise CampaignError(f"{fields.file}: {fields.at(name)} {error} (write CPU lists such as 0 or 0-1)") from None
