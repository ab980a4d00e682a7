"""Profiles of instances from stored samples or from files, and how a phase becomes a named workload."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from advisor.domain import Host, Instance, InstanceProfile, PhaseProfile, WorkloadProfile
from advisor.errors import InvalidInput, NotFound
from advisor.store import hosts, instances
from advisor.store.sample_store import STORED, SampleStore
from advisor.validation import MAX_NUMBER, load_json
from models.physics.demands import GOODPUT
from models.profiling.profiles import InstanceLimits, profile_windows
from models.profiling.windows import InstanceWindows, Readings, align, by_series, hosts_of
from profiler import files
from profiler.metrics import SCOPES
from profiler.observed import MetricSample, check_id

# Samples from files: JSON lines as the agent sends and keeps them, read strictly.

MAX_LINE = 16 * files.MEGABYTE  # a batch of the agent is far smaller
MOST_BYTES = 4096 * files.MEGABYTE  # of all lines of a file
LAST_S = 253_370_764_800  # the year 9999
_OF_ROW = ("instance", "scope")


def read_samples(paths: Sequence[Path]) -> list[MetricSample]:
    """Read samples as JSON lines, plain or gzip: each a sample of `POST /v1/samples`, or a whole body of it.

    InvalidInput names the file and line that is wrong. A last line without its end, which a killed writer leaves, is
    skipped.
    """
    return [sample for path in paths for sample in _samples_of(path)]


def _samples_of(path: Path) -> Iterator[MetricSample]:
    try:
        with path.open("rb") as probe:
            packed = probe.read(2) == files.GZIP
        with files.open_limited(path, MOST_BYTES, packed=packed) as file:
            for number, line in enumerate(files.lines(file, MAX_LINE), start=1):
                if line.strip():
                    yield from _of_line(path, number, line)
    except (OSError, EOFError, zlib.error, files.TooLargeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"samples cannot be read from {path}: {reason}", field="samples") from error


def _of_line(path: Path, number: int, line: bytes) -> Iterator[MetricSample]:
    try:
        entry = load_json(line)
    except (ValueError, RecursionError) as error:
        if not line.endswith(b"\n") and number > 1:
            return
        raise InvalidInput(f"{path}, line {number}: it is not JSON", field="samples") from error
    try:
        for item in _parts(entry):
            yield _sample(item)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise InvalidInput(f"{path}, line {number}: {reason}", field="samples") from error


def _parts(entry: Any) -> Iterator[Any]:
    """The samples of a line: itself, or those of a body, one by one and in windows."""
    if not isinstance(entry, dict) or entry.keys().isdisjoint(("samples", "windows")):
        yield entry
        return
    yield from _list(entry, "samples")
    for window in _list(entry, "windows"):
        metrics = _list(window, "metrics")
        if len(set(metrics)) < len(metrics):
            raise ValueError("a metric stands twice among the metrics")
        for row in _list(window, "rows"):
            values = dict(zip(metrics, _list(row, "values"), strict=True))
            about = {"host": window["host"], "time": window["time"], **{name: row.get(name) for name in _OF_ROW}}
            for metric, value in {**values, **row.get("others", {})}.items():
                if value is not None:
                    yield {**about, "metric": metric, "value": value}


def _list(there: Any, name: str) -> list[Any]:
    found = there.get(name, []) if isinstance(there, dict) else None
    if not isinstance(found, list):
        raise TypeError(f"{name} is not a list")
    return found


def _sample(entry: Any) -> MetricSample:
    """One sample as `POST /v1/samples` takes it; `time_s` may stand for `time`."""
    if not isinstance(entry, dict):
        raise TypeError("it is not a sample: host, instance, metric, value, time")
    instance, metric = entry.get("instance"), check_id(_text(entry["metric"]), "metric")
    scope_text = entry.get("scope") or ("host" if instance is None else "instance")
    scope = next((known for known in SCOPES if known == scope_text), None)
    if scope is None:
        raise ValueError(f"scope {str(scope_text)[:40]!r} is none of {', '.join(SCOPES)}")
    value = _number(entry["value"], "value", MAX_NUMBER)
    time_s = _number(entry["time_s"], "time_s", LAST_S) if "time_s" in entry else _time(_text(entry["time"]))
    owner = None if instance is None else check_id(_text(instance), "instance")
    return MetricSample(check_id(_text(entry["host"]), "host"), owner, scope, metric, value, time_s)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is not a text")
    return value


def _number(value: Any, name: str, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{name} {str(value)[:40]} is not a number from 0 to {most:.3g}")
    return float(value)


def _time(text: str) -> float:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"time {text[:40]!r} has no zone")
    return _number(time.timestamp(), "time", LAST_S)


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
        scaled = phase.at_full_load(name, platform) if extrapolate else measured
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
