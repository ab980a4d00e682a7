"""Reads and checks a dataset directory: platforms, solo profiles and measured co-locations."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from models.data.dataset_rules import ArtefactCounts, DatasetStatus, with_generators, without_artefacts
from models.data.profile import WorkloadProfile
from models.data.tables import CellRule, DatasetError, TableRow, find_table, read_rows
from profiler.demand import RESOURCES, Demand, Resource
from profiler.files import MEGABYTE, TooLargeError, load_yaml
from profiler.host_kinds import HOST_KINDS
from profiler.metrics import SCOPES, join_key
from profiler.observed import (
    MAX_WEIGHT,
    NET_MODES,
    PROBE_NAMES,
    Colocation,
    Host,
    Instance,
    IsolationSettings,
    NetMode,
    NetworkSettings,
    Outcome,
    Pinning,
    check_id,
    parse_cpus,
)

__all__ = ["COLOCATION_COLUMNS", "Dataset", "DatasetError", "load_dataset", "throughput_ratio"]

ORIGINS = ("paper", "measured", "simulated")
HIGHER_IS_BETTER = frozenset({"throughput"})
PROBE_COLUMNS = ("platform", "probe", "name", "value")
RATIO_OUTCOMES = frozenset({"throughput", "runtime_s"})  # what T/B is made of; the others are latency-like
OUTCOMES = (
    "throughput", "latency_mean_ms", "latency_p95_ms", "jitter_ms", "timeouts_percent", "runtime_s", "cpu_share",
)  # fmt: skip
# Of a window that an agent measured: what an instance wanted of each resource, of which `cpu_share` is what it got.
WANTED: Mapping[str, Resource] = {f"wanted_{resource}": resource for resource in RESOURCES}
PROFILE_COLUMNS = ("platform", "workload", "load", "scope", "metric", "value")
COLOCATION_COLUMNS = ("run", "platform", "instance", "workload", "outcome", "solo", "colocated")
PLATFORM_COLUMNS = frozenset(
    [
        "platform",
        "kind",
        "pcpus",
        "threads_per_core",
        "cpu_mhz",
        "l2_mb",
        "l3_mb",
        "memory_mb",
        "nic_mbit",
        "disk_kind",
        "numa_nodes",
        "numa_cpus",
        "siblings",
    ]
)
_NUMBER, _COUNT, _NAME = CellRule(number=True), CellRule(whole=True, low=1), CellRule(required=True)
_PLATFORM_RULES = {
    "platform": _NAME,
    "kind": _NAME,
    "pcpus": _COUNT,
    "memory_mb": _NUMBER,
    "threads_per_core": _COUNT,
    "disk_kind": CellRule(),
    "cpu_mhz": _NUMBER,
    "l2_mb": _NUMBER,
    "l3_mb": _NUMBER,
    "nic_mbit": _NUMBER,
    "numa_nodes": _COUNT,
    "numa_cpus": CellRule(),
    "siblings": CellRule(),
}
_PROFILE_RULES = {
    "platform": CellRule(),
    "workload": _NAME,
    "scope": CellRule(among=SCOPES),
    "metric": _NAME,
    "value": CellRule(required=True, number=True),
    "load": _NUMBER,
    "unit": CellRule(),
}
_PROBE_RULES = {
    "platform": _NAME,
    "workload": CellRule(),
    "probe": CellRule(required=True, among=PROBE_NAMES),
    "name": _NAME,
    "value": CellRule(required=True, number=True),
    "unit": CellRule(),
}
_COLOCATION_RULES = {
    "platform": _NAME,
    "run": _NAME,
    "repeat": CellRule(),
    "workload": _NAME,
    "outcome": CellRule(required=True, among=OUTCOMES),
    "solo": _NUMBER,
    "colocated": _NUMBER,
    "net_mode": CellRule(among=NET_MODES),
    "net_rate_mbit": _NUMBER,
    "pinning": CellRule(),
    "weight": _COUNT,
    "cap_percent": _NUMBER,
    "disk_limit_mb_s": _NUMBER,
    "load": _NUMBER,
    "vcpus": _COUNT,
    "instance": _NAME,
    "unit": CellRule(),
    "driver_cpus": CellRule(),
    "paper": CellRule(),
    "finding": CellRule(),
    "ends_s": _NUMBER,
    "importance": _NUMBER,
    "open_loop": _NUMBER,
    "burst_ms": _NUMBER,
    "ratio_se": _NUMBER,
    **dict.fromkeys(WANTED, _NUMBER),
}
SATURATED = 1.0
SHARE_OF_HOST = "% of host"  # a unit: 100 = all pCPUs together; turned into 100 = one pCPU on reading


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset directory in memory. `platforms` are the measured platforms as hosts, by name; `platform_numbers` has
    whatever further numeric columns the platforms table brings, by platform and column. `probes` is what probes found,
    medians by `PROBE.NAME`, of each (platform, workload that it ran in place of, "" = on the host itself). `status`
    says what it may be used for, and `artefacts` how many rows of `colocations` are not as they were measured."""

    name: str
    origin: str
    path: Path
    meta: Mapping[str, Any]
    platforms: Mapping[str, Host]
    profiles: tuple[WorkloadProfile, ...]
    colocations: tuple[Colocation, ...]
    fingerprint: str
    platform_numbers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    probes: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    status: DatasetStatus = field(default_factory=DatasetStatus)
    artefacts: ArtefactCounts = field(default_factory=ArtefactCounts)


def throughput_ratio(outcome: Outcome) -> float | None:
    """T/B of an outcome (contract, section 3): colocated/solo for throughput, solo/colocated for the others."""
    if outcome.solo is None or outcome.colocated is None:
        return None
    top, bottom = (
        (outcome.colocated, outcome.solo) if outcome.outcome in HIGHER_IS_BETTER else (outcome.solo, outcome.colocated)
    )
    return top / bottom if bottom > 0 else None


def load_dataset(path: Path) -> Dataset:
    """Read a dataset directory; DatasetError names the file, line and column of the first thing that is wrong."""
    path = Path(path)
    if not path.is_dir():
        raise DatasetError(f"{path} is not a dataset directory (it holds dataset.yaml, profiles and colocations)")
    meta = _read_meta(path)
    platforms, numbers = _read_platforms(path)
    profiles = _read_profiles(path, platforms, str(meta["origin"]))
    ruled, artefacts = without_artefacts(_read_colocations(path, platforms))
    runs = with_generators(path, meta, profiles, ruled)
    platforms = _with_pinned_cpus(platforms, runs)
    return Dataset(
        name=str(meta["name"]),
        origin=str(meta["origin"]),
        path=path,
        meta=meta,
        platforms=platforms,
        profiles=profiles,
        colocations=runs,
        fingerprint=_fingerprint(path),
        platform_numbers=numbers,
        probes=_read_probes(path, platforms),
        status=DatasetStatus.of(meta),
        artefacts=artefacts,
    )


def status_of(path: Path) -> DatasetStatus:
    """What the dataset at `path` may be used for; DatasetError names what is wrong with its dataset.yaml."""
    return DatasetStatus.of(_read_meta(path))


def _read_meta(path: Path) -> dict[str, Any]:
    file = path / "dataset.yaml"
    try:
        meta = load_yaml(file, MEGABYTE)
    except FileNotFoundError:
        raise DatasetError(f"{path} has no dataset.yaml") from None
    except (OSError, UnicodeDecodeError, TooLargeError) as error:
        raise DatasetError(f"dataset.yaml of {path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise DatasetError(f"dataset.yaml, line {line}: {getattr(error, 'problem', error)}") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        # what PyYAML lets through of values it cannot build, such as the 99th of a month, and of endless nesting
        raise DatasetError(f"dataset.yaml holds a value that cannot be read: {error}") from None
    if not isinstance(meta, dict):
        raise DatasetError("dataset.yaml, line 1: it must be a mapping with name and origin")
    for key in ("name", "origin"):
        if not isinstance(meta.get(key), str) or not meta[key].strip():
            raise DatasetError(f"dataset.yaml: field {key} is missing or not a text")
    if meta["origin"] not in ORIGINS:
        raise DatasetError(f"dataset.yaml: origin {meta['origin']!r} is none of {', '.join(ORIGINS)}")
    DatasetStatus.of(meta)
    return {key: value.isoformat() if isinstance(value, date | datetime) else value for key, value in meta.items()}


def _read_platforms(path: Path) -> tuple[dict[str, Host], dict[str, dict[str, float]]]:
    """The platforms as hosts, and their further numeric columns."""
    table = find_table(path, "platforms")
    if table is None:
        raise DatasetError(f"{path.name} has no platforms.csv or platforms.parquet")
    platforms: dict[str, Host] = {}
    numbers: dict[str, dict[str, float]] = {}
    described: dict[str, bool] = {}
    for row in read_rows(table, ("platform", "kind")):
        cells = row.read(_PLATFORM_RULES)
        name, disk_kind = cells["platform"], cells["disk_kind"]
        if name in platforms:
            raise row.error("platform", f"{name} stands twice")
        numbers[name] = _further(row, described)
        try:
            host = Host(
                id=name,
                # Bare metal and anything without a driver domain shares its kernel as containers do.
                kind=next((known for known in HOST_KINDS if known == cells["kind"]), "lxc"),
                pcpus=cells["pcpus"] or 1,
                memory_mb=cells["memory_mb"] or 1.0,
                threads_per_core=cells["threads_per_core"] or 1,
                disk_kind=disk_kind if disk_kind in {"hdd", "ssd", "nvme", "network"} else "",
                platform=name,
                cpu_mhz=cells["cpu_mhz"],
                l2_mb=cells["l2_mb"],
                l3_mb=cells["l3_mb"],
                nic_mbit=cells["nic_mbit"],
            )
        except ValueError as error:
            raise row.error("platform", str(error)) from None
        numa = (
            _listed(row, "numa_cpus", host.pcpus)
            if cells["numa_cpus"]
            else _nodes(row, host.pcpus, cells["numa_nodes"] or 1)
        )
        siblings = _listed(row, "siblings", host.pcpus) if cells["siblings"] else ()
        platforms[name] = replace(host, numa=numa if len(numa) > 1 else (), siblings=siblings)
    return platforms, numbers


def _nodes(row: TableRow, pcpus: int, nodes: int) -> tuple[tuple[int, ...], ...]:
    """The pCPUs of each NUMA node, as equal blocks of consecutive numbers; () = one node, or an unknown number."""
    if pcpus % nodes:
        raise row.error("numa_nodes", f"{nodes} nodes cannot have equal parts of {pcpus} pCPUs")
    size = pcpus // nodes
    return tuple(tuple(range(first, first + size)) for first in range(0, pcpus, size)) if nodes > 1 else ()


def _listed(row: TableRow, column: str, pcpus: int) -> tuple[tuple[int, ...], ...]:
    """The pCPUs of each NUMA node, or of each core, as the table lists them: `0-3,8-11; 4-7,12-15`."""
    try:
        groups = tuple(parse_cpus(text) for text in row.text(column).split(";"))
    except ValueError as error:
        raise row.error(column, str(error)) from None
    named = [cpu for group in groups for cpu in group]
    if len(set(named)) < len(named) or max(named) >= pcpus:
        raise row.error(column, f"names a pCPU twice, or one beyond 0-{pcpus - 1}")
    return groups


def _further(row: TableRow, described: dict[str, bool]) -> dict[str, float]:
    """A platform's further numbers. A column whose first cell is no number describes in words (`described`) and is left
    out; in one of numbers every cell must be one."""
    found: dict[str, float] = {}
    for column in row.cells:
        text = "" if column in PLATFORM_COLUMNS else row.text(column)
        if text and column not in described:
            described[column] = not _looks_like_number(text)
        if text and not described[column]:
            found[column] = row.number(column, required=True) or 0.0
    return found


def _looks_like_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_platform(row: TableRow, name: str, platforms: Mapping[str, Host]) -> None:
    if name and name not in platforms:
        raise row.error("platform", f"{name!r} is not in the platforms table")


def _check_workload(row: TableRow, name: str) -> None:
    try:
        check_id(name, "workload")
    except ValueError as error:
        raise row.error("workload", str(error)) from None


def _read_profiles(path: Path, platforms: Mapping[str, Host], origin: str) -> tuple[WorkloadProfile, ...]:
    """Median over repeats of each metric at the highest measured load, 1.0 where it was measured."""
    table = find_table(path, "profiles")
    if table is None:
        return ()
    values: dict[tuple[str, str], dict[str, dict[float, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    for row in read_rows(table, PROFILE_COLUMNS):
        cells = row.read(_PROFILE_RULES)
        owner = cells["platform"], cells["workload"]
        _check_platform(row, owner[0], platforms)
        _check_workload(row, owner[1])
        key = join_key(cells["scope"] or "instance", cells["metric"])
        load = SATURATED if cells["load"] is None else min(cells["load"], SATURATED)
        value = cells["value"]
        if cells["unit"] == SHARE_OF_HOST and owner[0]:
            value *= platforms[owner[0]].pcpus
        values[owner][key].setdefault(load, []).append(value)
    return tuple(
        WorkloadProfile(
            name=workload,
            metrics={key: median(by_load[max(by_load)]) for key, by_load in sorted(metrics.items())},
            platform=platform,
            origin=origin,
        )
        for (platform, workload), metrics in sorted(values.items())
    )


def _read_probes(path: Path, platforms: Mapping[str, Host]) -> dict[tuple[str, str], dict[str, float]]:
    """Medians over repeats and far ends; empty where the dataset has no table of probes, which is no fault."""
    table = find_table(path, "probes")
    values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read_rows(table, PROBE_COLUMNS) if table else ():
        cells = row.read(_PROBE_RULES)
        _check_platform(row, cells["platform"], platforms)
        if cells["workload"]:
            _check_workload(row, cells["workload"])
        values[cells["platform"], cells["workload"]][f"{cells['probe']}.{cells['name']}"].append(cells["value"])
    return {
        owner: {key: median(several) for key, several in sorted(found.items())}
        for owner, found in sorted(values.items())
    }


def _read_colocations(path: Path, platforms: Mapping[str, Host]) -> tuple[Colocation, ...]:
    """Co-locations in order of appearance; DatasetError at the first wrong row."""
    table = find_table(path, "colocations")
    together: dict[tuple[str, str, str], list[Outcome]] = defaultdict(list)
    described: dict[tuple[str, str, str, str], Instance] = {}
    driver: dict[tuple[str, str, str], tuple[int, ...]] = {}
    source: dict[tuple[str, str, str], tuple[str, str]] = {}
    windows: dict[tuple[str, str, str], tuple[float, float]] = {}
    seen: dict[tuple[str, str, str, str, str], int] = {}
    for row in read_rows(table, COLOCATION_COLUMNS) if table else ():
        cells = row.read(_COLOCATION_RULES)
        run = cells["platform"], cells["run"], cells["repeat"]
        _check_platform(row, run[0], platforms)
        outcome = _outcome(row, cells)
        key = (*run, outcome.instance.id, outcome.outcome)
        if key in seen:
            raise row.error("outcome", f"{outcome.outcome} of {outcome.instance.id} stands in line {seen[key]} already")
        seen[key] = row.line
        if described.setdefault(key[:4], outcome.instance) != outcome.instance:
            raise row.error("instance", f"{outcome.instance.id} is described otherwise in another line of run {run[1]}")
        cpus = _driver_cpus(row, cells["driver_cpus"])
        if driver.setdefault(run, cpus) != cpus:
            raise row.error("driver_cpus", f"another line of run {run[1]} says otherwise")
        together[run].append(outcome)
        source[run] = cells["paper"], cells["finding"]
        windows[run] = cells["ends_s"] or 0.0, 1.0 if cells["importance"] is None else cells["importance"]
    return tuple(
        Colocation(
            run=run[1],
            platform=run[0],
            repeat=run[2],
            outcomes=tuple(outcomes),
            driver_cpus=driver[run],
            paper=source[run][0],
            finding=source[run][1],
            ends_s=windows[run][0],
            importance=windows[run][1],
        )
        for run, outcomes in together.items()
    )


def _driver_cpus(row: TableRow, text: str) -> tuple[int, ...]:
    try:
        return parse_cpus(text) if text else ()
    except ValueError as error:
        raise row.error("driver_cpus", str(error)) from None


def _outcome(row: TableRow, cells: Mapping[str, Any]) -> Outcome:
    _check_workload(row, cells["workload"])
    if cells["solo"] == 0 and cells["outcome"] in RATIO_OUTCOMES:
        raise row.error("solo", "is 0: a ratio to it has no meaning")
    if cells["load"] == 0:
        raise row.error(
            "load", "is 0: an instance without load has no throughput (leave the cell empty for saturation)"
        )
    settings = _settings(row, cells)
    pinned = len(settings.pinning.cpus) if settings.pinning else 1
    vcpus = cells["vcpus"] or pinned
    if vcpus < pinned:
        raise row.error("pinning", f"names {pinned} vCPUs of an instance that has {vcpus}")
    load = SATURATED if cells["load"] is None else cells["load"]
    try:
        instance = Instance(
            id=cells["instance"], vcpus=vcpus, workload=cells["workload"], load=load, settings=settings,
            demand=_demand(cells),
        )  # fmt: skip
    except ValueError as error:
        raise row.error("instance", str(error)) from None
    return Outcome(instance, cells["outcome"], cells["solo"], cells["colocated"], cells["unit"], cells["ratio_se"])


def _demand(cells: Mapping[str, Any]) -> dict[Resource, Demand]:
    """The demand of an instance in one window, within which it does not vary."""
    more = {"open_loop": cells["open_loop"], "burst_ms": cells["burst_ms"], "common": 0.0, "windows": 1.0}
    return {
        resource: Demand(cells[column], resource, **more, origin="measured")
        for column, resource in WANTED.items()
        if cells[column] is not None
    }


def _settings(row: TableRow, cells: Mapping[str, Any]) -> IsolationSettings:
    try:
        pinning = Pinning.parse(cells["pinning"])
    except ValueError as error:
        raise row.error("pinning", str(error)) from None
    if cells["weight"] is not None and cells["weight"] > MAX_WEIGHT:
        raise row.error("weight", f"{cells['weight']} is above {MAX_WEIGHT}")
    mode: NetMode = cells["net_mode"] or "none"
    rate = cells["net_rate_mbit"]
    return IsolationSettings(
        pinning=pinning,
        cap_percent=cells["cap_percent"] or None,
        weight=cells["weight"],
        network=NetworkSettings(mode=mode, rate_mbit=rate) if mode != "none" and rate else None,
        disk_limit_mb_s=cells["disk_limit_mb_s"] or None,
    )


def _with_pinned_cpus(platforms: Mapping[str, Host], colocations: tuple[Colocation, ...]) -> dict[str, Host]:
    """Raise each platform's pCPUs to the highest pinned one: not every source gives their number."""
    most = {name: host.pcpus for name, host in platforms.items()}
    for colocation in colocations:
        used = set(colocation.driver_cpus)
        for instance in (*(outcome.instance for outcome in colocation.outcomes), *colocation.generators):
            pinning = instance.settings.pinning
            used |= pinning.union if pinning else frozenset()
        most[colocation.platform] = max(most[colocation.platform], max(used, default=0) + 1)
    return {name: replace(host, pcpus=most[name]) for name, host in platforms.items()}


def _fingerprint(path: Path) -> str:
    """SHA-256 over names and contents of the dataset's files; the model card records it."""
    digest = hashlib.sha256()
    for name in ("dataset", "platforms", "profiles", "colocations", "probes", "runs"):
        for suffix in (".yaml", ".csv", ".parquet"):
            file = path / f"{name}{suffix}"
            if file.is_file():
                digest.update(f"{file.name}\0".encode())
                with file.open("rb") as content:
                    while block := content.read(1 << 20):  # a table may be larger than the memory
                        digest.update(block)
    return digest.hexdigest()
