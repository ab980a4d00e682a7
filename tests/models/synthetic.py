"""Small scenes and dataset directories made of known numbers, for the tests of models."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from models.arrays import Floats
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, SceneBatch, build_batch
from profiler.demand import Demand
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning

Scene = tuple[Host, Sequence[Instance]]
Row = dict[str, object]
Rows = tuple[Row, ...]

PROFILES = (
    WorkloadProfile("spin", {"cpu": 100.0, "waiting": 0.0, "block": 0.0}),
    WorkloadProfile("half", {"cpu": 50.0, "waiting": 5.0, "block": 45.0}),
    WorkloadProfile("idle", {"cpu": 0.0}),
    WorkloadProfile("web", {"cpu": 60.0, "driver_domain.cpu": 40.0, "net_mbit": 80.0, "waiting": 30.0, "block": 5.0}),
    WorkloadProfile("bulk", {"cpu": 10.0, "driver_domain.cpu": 30.0, "net_mbit": 900.0, "block": 80.0}),
    WorkloadProfile("stream", {"cpu": 5.0, "throughput_kb_s": 50_000 / 1.024}),
    WorkloadProfile("disk", {"cpu": 5.0, "disk_mb_s": 200.0, "block": 100.0}),
    WorkloadProfile("log", {"cpu": 5.0, "disk_mb_s": 40.0}),
    WorkloadProfile("copy", {"cpu": 5.0, "mem_bw_mb_s": 9000.0}),
    WorkloadProfile("odd", {"llc_misses": 3.0}),
)
NAMES = tuple(profile.name for profile in PROFILES)
TABLE = ProfileTable.build(PROFILES)


def host(kind: str = "kvm", pcpus: int = 1, **more: Any) -> Host:
    """A host with enough memory and, unless the test says otherwise, a 1 Gbit/s link."""
    values: dict[str, Any] = {"id": "h", "kind": kind, "pcpus": pcpus, "memory_mb": 65_536.0, "nic_mbit": 1000.0}
    return Host(**{**values, **more})


def instance(
    name: str = "a", workload: str | None = "spin", *, pins: str = "", cap: float | None = None, **more: Any
) -> Instance:
    """`pins` as in the dataset format, `cap` in per cent of one pCPU, weight, network and disk likewise."""
    keys = ("weight", "network", "disk_limit_mb_s")
    settings = IsolationSettings(
        pinning=Pinning.parse(pins), cap_percent=cap, **{key: more.pop(key) for key in keys if key in more}
    )
    return Instance(name, workload=workload, settings=settings, **more)


def wanting(*demands: Demand, pcpus: int = 4, vcpus: int = 4) -> Scene:
    """A host whose instances have no profiles, and these demands for CPUs over time."""
    there = [Instance(f"i{at}", vcpus=vcpus, demand={"cpu": demand}) for at, demand in enumerate(demands)]
    return host("lxc", pcpus), there


def batch(*scenes: Scene, table: ProfileTable = TABLE) -> SceneBatch:
    """Scenes as arrays."""
    return build_batch(list(scenes), table)


def dedicated(rate: float) -> NetworkSettings:
    """A class that keeps to its rate."""
    return NetworkSettings("dedicated", rate, rate)


def shared(rate: float, ceil: float = 1000.0) -> NetworkSettings:
    """A class that may borrow up to `ceil`."""
    return NetworkSettings("shared", rate, ceil)


@st.composite
def hosts(draw: st.DrawFn, kinds: Sequence[str] = ("xen", "kvm", "lxc"), most: int = 5) -> Host:
    """Any small host, its driver domain on some of its CPUs or anywhere."""
    pcpus = draw(st.integers(1, most))
    return host(
        draw(st.sampled_from(kinds)),
        pcpus,
        driver_cpus=tuple(sorted(draw(st.sets(st.integers(0, pcpus - 1), max_size=2)))),
        nic_mbit=draw(st.sampled_from([None, 100.0, 1000.0])),
        platform=draw(st.sampled_from(["", "p1"])),
    )


@st.composite
def instances(
    draw: st.DrawFn, pcpus: int, names: Sequence[str | None] = (*NAMES, None), *, plain: bool = False
) -> Instance:
    """Any instance that fits a host of `pcpus`; `plain` = without any settings."""
    vcpus = draw(st.integers(1, 3))
    bare = Instance(
        "x", vcpus=vcpus, workload=draw(st.sampled_from(names)), load=draw(st.sampled_from([1.0, 0.5, 0.1, 2.0]))
    )
    if plain:
        return bare
    cpus = draw(st.none() | st.sets(st.integers(0, pcpus - 1), min_size=1, max_size=3))
    rate = draw(st.sampled_from([50.0, 300.0, 700.0]))
    return replace(
        bare,
        settings=IsolationSettings(
            pinning=Pinning.all_on(tuple(sorted(cpus)), vcpus) if cpus else None,
            cap_percent=draw(st.sampled_from([None, None, 10.0, 50.0, 150.0])),
            weight=draw(st.sampled_from([None, None, 1, 128, 1024, 65_535])),
            network=draw(st.sampled_from([None, None, dedicated(rate), shared(rate)])),
            disk_limit_mb_s=draw(st.sampled_from([None, None, 20.0, 500.0])),
        ),
    )


@st.composite
def scenes(
    draw: st.DrawFn,
    kinds: Sequence[str] = ("xen", "kvm", "lxc"),
    names: Sequence[str | None] = (*NAMES, None),
    *,
    least: int = 0,
    most: int = 4,
    plain: bool = False,
) -> tuple[Host, tuple[Instance, ...]]:
    """A host with `least` to `most` instances named i0, i1, ..."""
    there = draw(hosts(kinds))
    count = draw(st.integers(least, most))
    found = [draw(instances(there.pcpus, names, plain=plain)) for _ in range(count)]
    return there, tuple(replace(one, id=f"i{number}") for number, one in enumerate(found))


def write_csv(path: Path, rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Write rows under a header; what a row lacks is an empty cell."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows({key: row.get(key, "") for key in columns} for row in rows)


PLATFORM_COLUMNS = ("platform", "kind", "pcpus", "memory_mb", "cpu_mhz", "l3_mb", "nic_mbit", "disk_kind")
PROFILE_COLUMNS = ("platform", "workload", "load", "scope", "metric", "value", "unit", "repeat")
COLOCATION_COLUMNS = (
    "run", "platform", "instance", "workload", "load", "vcpus", "pinning", "driver_cpus", "cap_percent", "weight",
    "net_mode", "net_rate_mbit", "disk_limit_mb_s", "outcome", "solo", "colocated", "unit", "repeat",
)  # fmt: skip


METRICS = ("cpu", "llc_misses", "mem_reads", "noise")


@dataclass(frozen=True)
class Tables:
    """The three tables of a dataset as rows; a column that only some rows have is empty in the others."""

    platforms: Rows
    profiles: Rows
    colocations: Rows

    def write(self, path: Path) -> Path:
        """Write the dataset directory; returns it."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "dataset.yaml").write_text(
            f"name: {path.name}\norigin: simulated\nmachine: a made-up one\n", encoding="utf-8"
        )
        for name, rows, columns in (
            ("platforms", self.platforms, PLATFORM_COLUMNS),
            ("profiles", self.profiles, PROFILE_COLUMNS),
            ("colocations", self.colocations, COLOCATION_COLUMNS),
        ):
            more = (column for row in rows for column in row)
            write_csv(path / f"{name}.csv", rows, tuple(dict.fromkeys((*columns, *more))))
        return path


def profile_row(workload: str, metric: str, value: float) -> Row:
    """A metric of a workload under full load, on any platform."""
    return {"workload": workload, "load": 1, "scope": "instance", "metric": metric, "value": value, "repeat": 1}


@dataclass(frozen=True)
class World:
    """How T/B comes about in a made-up cloud: sensitivity times pressure, and what no metric shows.

    `hidden` is the spread of an effect on log T/B that belongs to a workload and that its metrics do not show.
    """

    workloads: int = 6
    repeats: int = 2
    hidden: float = 0.0
    noise: float = 0.01
    seed: int = 0
    platforms: tuple[str, ...] = ("p1",)
    settings: tuple[str, ...] = ("0:0",)  # pinnings that every run is repeated under
    triples: bool = False
    latency: bool = False
    jitter: bool = False
    tlb_mb: tuple[float, ...] = ()  # a number of its own for each platform

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"w{number}" for number in range(self.workloads))

    def metrics(self) -> Floats:
        """(W, 4): CPU in per cent, cache misses, reads of memory, and one that says nothing."""
        random = np.random.default_rng(self.seed)
        return random.uniform([20.0, 1.0, 100.0, 0.0], [100.0, 50.0, 9000.0, 1.0], (self.workloads, 4))

    def ratio(self, victim: int, others: Sequence[int]) -> float:
        """T/B without noise."""
        metrics = self.metrics()
        secret = np.random.default_rng(self.seed + 1).normal(0, self.hidden, self.workloads)
        pressure = sum(metrics[other, 0] / 100 + metrics[other, 1] / 100 for other in others)
        effect = sum(secret[other] for other in others) + (secret[victim] if others else 0.0)
        return float(np.exp(effect) / (1 + 0.6 * pressure * metrics[victim, 0] / 100))

    def groups(self) -> list[tuple[int, ...]]:
        """Which workloads run together."""
        pairs: list[tuple[int, ...]] = list(combinations_with_replacement(range(self.workloads), 2))
        return pairs + ([(one, two, (two + 1) % self.workloads) for one, two in pairs] if self.triples else [])

    def rows(self) -> list[Row]:
        """The colocations table."""
        random = np.random.default_rng(self.seed + 2)
        rows: list[Row] = []
        for platform in self.platforms:
            for setting in self.settings:
                for group in self.groups():
                    for repeat in range(self.repeats):
                        run = f"{setting}-{'-'.join(map(str, group))}".replace(":", ".").replace(",", ".")
                        for slot, workload in enumerate(group):
                            others = [*group[:slot], *group[slot + 1 :]]
                            ratio = self.ratio(workload, others) * float(np.exp(random.normal(0, self.noise)))
                            common: Row = {
                                "run": run, "platform": platform, "instance": f"vm{slot}", "workload": f"w{workload}",
                                "load": 1, "vcpus": 1, "pinning": setting, "repeat": repeat,
                            }  # fmt: skip
                            rows.append({**common, "outcome": "throughput", "solo": 100, "colocated": 100 * ratio})
                            if self.latency:
                                rows.append({**common, "outcome": "latency_mean_ms", "solo": 2, "colocated": 2 / ratio})
                            if self.jitter:
                                rows.append({**common, "outcome": "jitter_ms", "solo": 1, "colocated": ratio**-1.5})
        return rows

    def tables(self) -> Tables:
        """The whole dataset."""
        host = {"kind": "lxc", "pcpus": 2, "memory_mb": 4096, "cpu_mhz": 3000, "nic_mbit": 1000}
        tlb = self.tlb_mb or (None,) * len(self.platforms)
        return Tables(
            platforms=tuple(
                {"platform": name, **host, **({} if size is None else {"tlb_mb": size})}
                for name, size in zip(self.platforms, tlb, strict=True)
            ),
            profiles=tuple(
                profile_row(f"w{at}", metric, float(value))
                for at, values in enumerate(self.metrics())
                for metric, value in zip(METRICS, values, strict=True)
            ),
            colocations=tuple(self.rows()),
        )

    def write(self, path: Path) -> Path:
        """Write the dataset directory; returns it."""
        return self.tables().write(path)
