"""Profiles of instances from stored samples or from samples at hand, and how a phase becomes a named workload."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from advisor.domain import Host, Instance, InstanceProfile, PhaseProfile, WorkloadProfile
from advisor.errors import InvalidInput, NotFound
from advisor.store import hosts, instances
from advisor.store.sample_store import STORED, SampleStore
from models.physics.demands import GOODPUT
from models.profiling.profiles import InstanceLimits, profile_windows
from models.profiling.windows import InstanceWindows, Readings, align, by_series, hosts_of
from profiler.observed import MetricSample

# Of more than a day, or where some of it is rolled up, all is read as five-minute means: windows are of one length.
ONE_BY_ONE_S = 86_400.0
MAX_WINDOWS = 10_000  # a day of the agent's ten seconds has 8,640; the search for phases takes seconds at this length
_SINCE = re.compile(r"([0-9]{1,6})([smhd])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST_S = 3650 * 86_400.0  # nothing is kept for so long, and some times before it are none


def parse_since(text: str) -> float:
    """Seconds that a time such as `90m`, `24h` or `7d` lasts, at most LONGEST_S; InvalidInput otherwise."""
    match = _SINCE.match(text)
    if not match or int(match[1]) == 0:
        raise InvalidInput(f"since {text[:40]!r} is not a time such as 90m, 24h or 7d", field="since")
    return min(float(int(match[1]) * _SECONDS[match[2]]), LONGEST_S)


@dataclass(frozen=True, slots=True)
class Seen:
    """What another store saw of an instance and of who is around it; `notes` tell what it did not see."""

    readings: Readings
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """The material for a profile: windows of the instance, and what it and its host are, where known."""

    windows: InstanceWindows
    instance: Instance | None
    host: Host | None
    notes: tuple[str, ...] = ()


def read_stored(
    connection: Connection,
    instance_id: str,
    *,
    since: str,
    now: datetime,
    elsewhere: Seen | None = None,
    samples: SampleStore = STORED,
) -> Stored:
    """Read what was measured in the last `since`; NotFound where nothing was, InvalidInput where it is too much.

    `elsewhere` is what was measured, where that is not in the database.
    """
    if elsewhere is not None:
        readings = elsewhere.readings
    else:
        now_s = now.timestamp()
        readings = samples.around(connection, instance_id, now_s - parse_since(since), now_s, ONE_BY_ONE_S)
    instance = instances.get(connection, instance_id)
    if not hosts_of(readings, instance_id):
        if instance is None:
            raise NotFound(f"there is no instance {instance_id}, and no samples of it in the last {since}")
        raise NotFound(f"there are no samples of instance {instance_id} in the last {since}; does its host push any?")
    windows = _windows(readings, instance_id)
    return Stored(windows, instance, hosts.get(connection, windows.host), elsewhere.notes if elsewhere else ())


def profile_stored(stored: Stored) -> InstanceProfile:
    """Phases and profiles of what was read; takes a second for a day of windows."""
    vcpus = float(stored.instance.vcpus) if stored.instance else None
    return _noting(profile_windows(stored.windows, _limits(stored.instance, stored.host), vcpus), stored.notes)


def profile_samples(measured: Sequence[MetricSample], instance_id: str) -> InstanceProfile:
    """Profile an instance from samples at hand; NotFound where there are none of it."""
    named = sorted({sample.instance for sample in measured if sample.instance and sample.scope == "instance"})
    if instance_id not in named:
        hint = f"; there are {', '.join(named[:5])}" if named else ""
        raise NotFound(f"there are no samples of instance {instance_id}{hint}")
    return profile_windows(_windows(by_series(measured), instance_id))


def profile_seen(seen: Seen, instance_id: str) -> InstanceProfile:
    """Profile an instance from readings that have some of it; nothing is known of its limits."""
    return _noting(profile_windows(_windows(seen.readings, instance_id)), seen.notes)


def workload_of(
    profile: InstanceProfile, number: int | None, name: str, *, platform: str, anyway: bool, extrapolate: bool
) -> WorkloadProfile:
    """A phase as a workload of this name, as measured or scaled to load 1.0.

    Without a number the only phase in which it works is meant. InvalidInput refuses a phase that is not there, one that
    is not enough unless `anyway`, and a scaling that would be a guess.
    """
    phase = _choose(profile, number)
    if not phase.enough and not anyway:
        message = f"phase {phase.number} is not enough for a workload: {'; '.join(phase.reasons)}"
        raise InvalidInput(message, field="phase")
    try:
        measured = phase.profile(name, platform)
        scaled = profile.at_full_load(phase, name, platform) if extrapolate else measured
    except ValueError as error:
        raise InvalidInput(str(error), field="phase") from error
    if scaled is None:
        text = "only one seen at part load beside a saturated phase of the same work can be"
        raise InvalidInput(f"phase {phase.number} cannot be scaled to full load: {text}", field="phase")
    return scaled


def _windows(readings: Readings, instance_id: str) -> InstanceWindows:
    windows = align(readings, instance_id)
    if len(windows) > MAX_WINDOWS:
        message = f"{len(windows)} windows of {instance_id}, at most {MAX_WINDOWS} are looked at; ask for less time"
        raise InvalidInput(message, field="since")
    return windows


def _noting(profile: InstanceProfile, notes: tuple[str, ...]) -> InstanceProfile:
    return replace(profile, notes=(*profile.notes, *notes)) if notes else profile


def _limits(instance: Instance | None, host: Host | None) -> InstanceLimits:
    """The limits that the inventory knows; a cap counts where it is below the vCPUs."""
    settings = instance.settings if instance else None
    cap = settings.cap_percent if settings else None
    is_cap = instance is not None and cap is not None and cap < 100 * instance.vcpus
    network = settings.network if settings else None
    rates = [host.nic_mbit * GOODPUT] if host and host.nic_mbit else []
    if network and network.mode != "none":
        most = network.rate_mbit if network.mode == "dedicated" else network.ceil_mbit
        rates += [most] if most else []
    disk = settings.disk_limit_mb_s if settings else None
    return InstanceLimits(cap if is_cap else None, is_cap, min(rates, default=None), disk)


def _choose(profile: InstanceProfile, number: int | None) -> PhaseProfile:
    if number is None:
        working = [phase for phase in profile.phases if phase.load.method != "idle"]
        if len(working) != 1:
            numbers = ", ".join(str(phase.number) for phase in working) or "none"
            message = f"{profile.instance} has {len(working)} phases in which it works ({numbers}); choose with --phase"
            raise InvalidInput(message, field="phase")
        return working[0]
    chosen = next((phase for phase in profile.phases if phase.number == number), None)
    if chosen is None:
        raise InvalidInput(f"{profile.instance} has phases 1-{len(profile.phases)}, not {number}", field="phase")
    return chosen
