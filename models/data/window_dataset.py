"""What a service has seen as dataset directories: windows that agents measured, with what each instance wanted, beside
its neighbours, and its share of it; and co-locations that users posted."""

from __future__ import annotations

import csv
import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from models.data.dataset import COLOCATION_COLUMNS, PLATFORM_COLUMNS, PROFILE_COLUMNS, WANTED
from models.data.profile import WorkloadProfile
from profiler.files import MEGABYTE, open_limited
from profiler.metrics import split_key
from profiler.observed import Colocation, Host, Instance, Pinning, format_cpus

NATURAL_EXPERIMENT = 3.0  # a window whose company is another one than before counts as so many steady ones; assumed
CALM, CALM_LEVEL = 0.98, 10  # a share from which a window is calm, as in models.evaluation.prediction_checks
MOST_SHARES = 8_000  # of each level of contention that are learned from
LOAD_STEPS = 10  # of the demand per CPU of a host: windows of one company that agree on it are alike
_SETTINGS = ("pinning", "weight", "cap_percent", "net_mode", "net_rate_mbit", "disk_limit_mb_s")
_DEMAND = ("open_loop", "burst_ms")
COLUMNS = (
    *COLOCATION_COLUMNS, "vcpus", *_SETTINGS, *WANTED, *_DEMAND, "driver_cpus", "ends_s", "importance"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SharedWindow:
    """One window of a host: which instances ran there, each with the demand of that window, and the share that those
    got of which it is known."""

    host: Host
    instances: tuple[Instance, ...]
    shares: Mapping[str, float]
    ends_s: float

    @property
    def company(self) -> str:
        """Which instances were there with which settings, as a text."""
        return json.dumps([[one.id, one.vcpus, str(one.settings)] for one in self.instances])

    @property
    def load(self) -> int:
        """The demand for CPUs per CPU of the host in steps."""
        demanded = sum(one.demand["cpu"].mean for one in self.instances if "cpu" in one.demand)
        return round(LOAD_STEPS * demanded / self.host.pcpus)


@dataclass(frozen=True, slots=True)
class ChosenWindow:
    """A window that is learned from, with how many it stands for."""

    window: SharedWindow
    importance: float


@dataclass(slots=True)
class _Level:
    """Windows of one level of contention: how many came, and those that were kept, a heap by number, the last first."""

    seen: int = 0
    shares: int = 0
    kept: list[tuple[int, int, SharedWindow, bytes, bool]] = field(default_factory=list)


class WindowSample:
    """Of any number of windows those to learn from, so that a million take no more time and memory than some thousands.

    Windows are taken apart by the least share in them, and of each level at most MOST_SHARES shares are kept: all of
    the contended ones where there are few of them, and of the calm ones, which are nine in ten and say nothing that
    others do not, a part that stands for all. Which are kept depends on the windows alone.

    Those of one company at one load count together as one, and each thrice where the company on that host is another
    one than in the window before (an instance came, left, began or stopped, or was given other settings). Windows are
    added in the order of their time.
    """

    def __init__(self, most_shares: int = MOST_SHARES) -> None:
        self._most = most_shares
        self._levels: dict[int, _Level] = {}
        self._alike: Counter[bytes] = Counter()
        self._before: dict[str, bytes] = {}

    def add(self, window: SharedWindow) -> None:
        """Take one more."""
        company = _digest(window.company)
        alike = _digest(window.host.id, company, window.load)
        changed = self._before.get(window.host.id, company) != company
        self._before[window.host.id] = company
        self._alike[alike] += 1
        level = self._levels.setdefault(contention_level(window.shares.values()), _Level())
        level.seen += 1
        level.shares += len(window.shares)
        number = -int.from_bytes(_digest(window.host.id, window.ends_s), "big")
        heapq.heappush(level.kept, (number, level.seen, window, alike, changed))
        while level.shares > self._most and len(level.kept) > 1:
            level.shares -= len(heapq.heappop(level.kept)[2].shares)

    def chosen(self) -> list[ChosenWindow]:
        """The windows that were kept, in the order of their time."""
        found = []
        for level in self._levels.values():
            stands_for = level.seen / max(len(level.kept), 1)
            for _, _, window, alike, changed in level.kept:
                importance = NATURAL_EXPERIMENT if changed else 1 / self._alike[alike]
                found.append(ChosenWindow(window, stands_for * importance))
        return sorted(found, key=lambda one: (one.window.ends_s, one.window.host.id))


def contention_level(shares: Iterable[float]) -> int:
    """The level of a window by the least share in it: 10 = calm, below it by tenths."""
    least = min(shares, default=1.0)
    return CALM_LEVEL if least >= CALM else int(least * CALM_LEVEL)


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()


def sampled(windows: Iterable[SharedWindow], most_shares: int = MOST_SHARES) -> list[ChosenWindow]:
    """Those of some windows to learn from."""
    sample = WindowSample(most_shares)
    for window in sorted(windows, key=lambda one: one.ends_s):
        sample.add(window)
    return sample.chosen()


def holds_windows(path: Path) -> bool:
    """Whether a dataset directory is one of windows: its table says when each ended."""
    try:
        with open_limited(path / "colocations.csv", MEGABYTE, packed=False) as file:
            return "ends_s" in next(csv.reader([file.readline(MEGABYTE).decode("utf-8-sig")]), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return False  # whoever reads it says what is wrong


def write_windows(path: Path, name: str, windows: Sequence[SharedWindow]) -> None:
    """Write a dataset directory whose platforms are the hosts, of those windows that are worth learning from; `path`
    must be an empty directory."""
    write_chosen(path, name, sampled(windows))


def write_chosen(path: Path, name: str, chosen: Sequence[ChosenWindow]) -> None:
    """The same of windows that were chosen already."""
    meta = {"name": name, "origin": "measured", "machine": "windows that agents measured on the hosts of this cloud"}
    (path / "dataset.yaml").write_text(yaml.safe_dump(meta, sort_keys=False), encoding="utf-8")
    hosts = {one.window.host.id: one.window.host for one in chosen}
    _write(path / "platforms.csv", sorted(PLATFORM_COLUMNS), map(_platform, hosts.values()))
    _write(path / "colocations.csv", COLUMNS, _rows(chosen))


@dataclass(frozen=True, slots=True)
class PostedScene:
    """A co-location that a user posted, as its host and instances are known: what was measured of them, each as often
    as it was posted."""

    host: Host
    instances: tuple[Instance, ...]
    colocations: tuple[Colocation, ...]


def write_posted(path: Path, name: str, scenes: Sequence[PostedScene], profiles: Sequence[WorkloadProfile]) -> None:
    """The same of co-locations that users posted, with the solo profiles of their workloads."""
    meta = {"name": name, "origin": "measured", "machine": "results that users of this cloud posted"}
    (path / "dataset.yaml").write_text(yaml.safe_dump(meta, sort_keys=False), encoding="utf-8")
    hosts = {one.host.id: one.host for one in scenes}
    _write(path / "platforms.csv", sorted(PLATFORM_COLUMNS), map(_platform, hosts.values()))
    known = {profile.name for profile in profiles}
    used = {one.workload for scene in scenes for one in scene.instances if one.workload in known}
    cells = (
        {"platform": profile.platform, "workload": profile.name, "scope": scope, "metric": metric, "value": value}
        for profile in profiles
        if profile.name in used and profile.platform in {"", *hosts}
        for (scope, metric), value in ((split_key(key), value) for key, value in profile.metrics.items())
    )
    _write(path / "profiles.csv", PROFILE_COLUMNS, cells)
    columns = [column for column in COLUMNS if column not in {"ends_s", "importance"}]
    _write(path / "colocations.csv", (*columns, "repeat", "load", "unit"), _posted_rows(scenes))


def _posted_rows(scenes: Sequence[PostedScene]) -> Iterator[dict[str, object]]:
    for number, scene in enumerate(scenes):
        for repeat, colocation in enumerate(scene.colocations):
            by_id = {one.id: one for one in scene.instances}
            for outcome in colocation.outcomes:
                one = by_id[outcome.instance.id]
                yield {
                    **_instance_cells(scene.host, one),
                    "run": f"posted-{number}",
                    "repeat": repeat,
                    "workload": colocation.probe if colocation.probe and outcome.solo else one.workload or one.id,
                    "load": one.load,
                    "outcome": outcome.outcome,
                    "solo": outcome.solo,
                    "colocated": outcome.colocated,
                    "unit": outcome.unit,
                }


def _write(path: Path, columns: Sequence[str], rows: Iterator[Mapping[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _platform(host: Host) -> dict[str, object]:
    plain = {name: getattr(host, name) for name in PLATFORM_COLUMNS if hasattr(host, name)}
    groups = {"numa_cpus": host.numa, "siblings": host.siblings}
    listed = {column: ";".join(_placed(host, cpus) for cpus in each) for column, each in groups.items()}
    return {**plain, "platform": host.id, **listed}


def _rows(chosen: Sequence[ChosenWindow]) -> Iterator[dict[str, object]]:
    for window, importance in ((one.window, one.importance) for one in chosen):
        for one in window.instances:
            share = window.shares.get(one.id)
            yield {
                **_instance_cells(window.host, one),
                "run": f"{window.ends_s:.0f}",
                "workload": one.id,
                "outcome": "cpu_share",
                "solo": None if share is None else 1,
                "colocated": share,
                "ends_s": window.ends_s,
                "importance": importance,
            }


def _instance_cells(host: Host, one: Instance) -> dict[str, object]:
    """An instance on a host as cells of a row."""
    cpu = one.demand.get("cpu")
    return {
        "platform": host.id,
        "instance": one.id,
        "vcpus": one.vcpus,
        **_settings(host, one),
        **{column: one.demand[name].mean for column, name in WANTED.items() if name in one.demand},
        **{column: None if cpu is None else getattr(cpu, column) for column in _DEMAND},
        "driver_cpus": _placed(host, host.driver_cpus or _everywhere(host)),
    }


def _placed(host: Host, cpus: Iterable[int]) -> str:
    """CPUs by their positions: a platform of a dataset numbers its CPUs from 0."""
    return format_cpus(tuple(host.places(cpus)))


def _everywhere(host: Host) -> tuple[int, ...]:
    """Where unpinned instances run, empty = on every CPU: a dataset does not know of isolated CPUs."""
    return host.shared_cpus if host.isolated_cpus else ()


def _pinning(host: Host, one: Instance) -> Pinning | None:
    """Its pins by positions."""
    pinning, everywhere = one.settings.pinning, tuple(host.places(_everywhere(host)))
    if pinning is None:
        return Pinning.all_on(everywhere, one.vcpus) if everywhere else None
    return Pinning(tuple(tuple(host.places(cpus)) or everywhere for cpus in pinning.cpus))


def _settings(host: Host, one: Instance) -> dict[str, object]:
    settings, network, pinning = one.settings, one.settings.network, _pinning(host, one)
    return {
        "pinning": "" if pinning is None else str(pinning),
        "weight": settings.weight,
        "cap_percent": settings.cap_percent,
        "net_mode": network.mode if network else "none",
        "net_rate_mbit": network.rate_mbit if network else None,
        "disk_limit_mb_s": settings.disk_limit_mb_s,
    }
