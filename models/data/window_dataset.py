"""What a service has seen as dataset directories: windows that agents measured, with what each instance wanted, beside
whom, and its share of it; and co-locations that users posted."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from models.data.dataset import COLOCATION_COLUMNS, PLATFORM_COLUMNS, PROFILE_COLUMNS, WANTED
from models.data.profile import WorkloadProfile
from profiler.limited import MEGABYTE, open_limited
from profiler.metrics import split_key
from profiler.observed import Colocation, Host, Instance, Pinning, format_cpus

NATURAL_EXPERIMENT = 3.0  # a window whose company is another one than before counts as so many steady ones; assumed
LOAD_STEPS = 10  # of the demand per CPU of a host: windows of one company that agree on it are alike
_SETTINGS = ("pinning", "weight", "cap_percent", "net_mode", "net_rate_mbit", "disk_limit_mb_s")
_DEMAND = ("open_loop", "burst_ms")
COLUMNS = (
    *COLOCATION_COLUMNS, "vcpus", *_SETTINGS, *WANTED, *_DEMAND, "driver_cpus", "ends_s", "importance"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SharedWindow:
    """One window of a host: who ran there, each with the demand of that window, and the share that those got of whom it
    is known."""

    host: Host
    instances: tuple[Instance, ...]
    shares: Mapping[str, float]
    ends_s: float

    @property
    def company(self) -> str:
        """Who was there with which settings, as a text."""
        return json.dumps([[one.id, one.vcpus, str(one.settings)] for one in self.instances])

    @property
    def load(self) -> int:
        """The demand for CPUs per CPU of the host in steps."""
        wanted = sum(one.demand["cpu"].mean for one in self.instances if "cpu" in one.demand)
        return round(LOAD_STEPS * wanted / self.host.pcpus)


def importances(windows: Sequence[SharedWindow]) -> list[float]:
    """How much each window counts: those of one company at one load together as one, and thrice where the company on
    that host is another one than in the window before (somebody came, went, began or stopped, or was given other
    settings)."""
    alike = Counter((one.host.id, one.company, one.load) for one in windows)
    before: dict[str, str] = {}
    found = {}
    for at in sorted(range(len(windows)), key=lambda at: windows[at].ends_s):
        one = windows[at]
        company = one.company
        changed = before.get(one.host.id, company) != company
        before[one.host.id] = company
        found[at] = NATURAL_EXPERIMENT if changed else 1 / alike[one.host.id, company, one.load]
    return [found[at] for at in range(len(windows))]


def holds_windows(path: Path) -> bool:
    """Whether a dataset directory is one of windows: its table says when each ended."""
    try:
        with open_limited(path / "colocations.csv", MEGABYTE, packed=False) as file:
            return "ends_s" in next(csv.reader([file.readline(MEGABYTE).decode("utf-8-sig")]), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return False  # whoever reads it says what is wrong


def write_windows(path: Path, name: str, windows: Sequence[SharedWindow]) -> None:
    """Write a dataset directory whose platforms are the hosts; `path` must be an empty directory."""
    meta = {"name": name, "origin": "measured", "machine": "windows that agents measured on the hosts of this cloud"}
    (path / "dataset.yaml").write_text(yaml.safe_dump(meta, sort_keys=False), encoding="utf-8")
    hosts = {one.host.id: one.host for one in sorted(windows, key=lambda one: one.ends_s)}
    _write(path / "platforms.csv", sorted(PLATFORM_COLUMNS), map(_platform, hosts.values()))
    _write(path / "colocations.csv", COLUMNS, _rows(windows))


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
                    "workload": one.workload or one.id,
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
    return {**plain, "platform": host.id, "numa_cpus": ";".join(_placed(host, cpus) for cpus in host.numa)}


def _rows(windows: Sequence[SharedWindow]) -> Iterator[dict[str, object]]:
    for window, importance in zip(windows, importances(windows), strict=True):
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
