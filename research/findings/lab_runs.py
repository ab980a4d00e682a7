"""Runs of measured datasets: instances with their settings and outcomes, and the metrics of the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from models.data.tables import DatasetError, TableRow, read_rows

Metrics = Mapping[tuple[str, str, str], float]


@dataclass(frozen=True, slots=True)
class RunMember:
    """One instance of a run. `reached` holds all its outcomes, `solo` those of its base case in the same round."""

    instance: str
    workload: str
    load: float = 1.0
    pinning: str = ""
    cap_percent: float | None = None
    weight: float | None = None
    net_mode: str = ""
    net_rate_mbit: float | None = None
    disk_limit_mb_s: float | None = None
    reached: Mapping[str, float] = field(default_factory=dict)
    solo: Mapping[str, float] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Saturated, and held back by nothing but the network."""
        return self.load >= 1 and self.cap_percent is None and self.weight is None and self.disk_limit_mb_s is None

    def ratio(self, outcome: str = "throughput") -> float | None:
        """T/B: reached over solo."""
        reached, solo = self.reached.get(outcome), self.solo.get(outcome)
        return None if reached is None or not solo else reached / solo


@dataclass(frozen=True, slots=True)
class LabRun:
    """One run of one round; `metrics` by instance (empty = the whole), scope and metric."""

    dataset: str
    platform: str
    run: str
    repeat: str
    kind: str
    form: str
    members: tuple[RunMember, ...]
    metrics: Metrics

    def metric(self, scope: str, metric: str, instance: str = "") -> float | None:
        """A metric of the host, of the driver domain, or of one instance."""
        return self.metrics.get((instance, scope, metric))


@dataclass(frozen=True, slots=True)
class LabRuns:
    """All runs of all measured datasets."""

    tables: tuple[_Tables, ...]

    @classmethod
    def of(cls, directories: Iterable[Path]) -> LabRuns:
        """Datasets without tables of runs hold nothing for it."""
        return cls(tuple(_Tables(path) for path in directories if (path / "runs.csv").is_file()))

    def runs(self, *workloads: str, kind: str = "group", where: Callable[[LabRun], bool] | None = None) -> list[LabRun]:
        """Runs of exactly these workloads, members in this order, in the first dataset that has any that fit."""
        for tables in self.tables:
            same = (_ordered(run, workloads) for run in tables.by_members.get((kind, *sorted(workloads)), ()))
            found = [run for run in same if where is None or where(run)]
            if found:
                return found
        return []

    @property
    def parts(self) -> list[LabRuns]:
        """Every dataset by itself."""
        return [LabRuns((tables,)) for tables in self.tables]


def _ordered(run: LabRun, workloads: Sequence[str]) -> LabRun:
    """A run of just these workloads with its members in their order."""
    left = list(run.members)
    order = [left.pop([one.workload for one in left].index(name)) for name in workloads]
    return replace(run, members=tuple(order))


class _Tables:
    """The tables of one dataset, read on first use."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def runs(self) -> list[LabRun]:
        try:
            return self._read()
        except DatasetError as error:
            raise DatasetError(f"{self._path.name}: {error}") from None

    @cached_property
    def by_members(self) -> dict[tuple[str, ...], list[LabRun]]:
        """Runs by their kind and the sorted names of their workloads."""
        found: dict[tuple[str, ...], list[LabRun]] = defaultdict(list)
        for run in self.runs:
            found[run.kind, *sorted(member.workload for member in run.members)].append(run)
        return found

    def _read(self) -> list[LabRun]:
        members = self._members()
        metrics = self._metrics()
        forms: dict[tuple[str, str], tuple[str, str]] = {}
        for row in self._rows("runs.csv", ("run", "repeat", "kind", "pinning")):
            forms[row.text("run"), row.text("repeat")] = (row.text("kind"), row.text("pinning"))
        platforms, usual = self._platforms(), self._only_platform()
        return [
            LabRun(
                self._path.name,
                platforms.get(key, usual),
                *key,
                *forms[key],
                tuple(there.values()),
                metrics.get(key, {}),
            )
            for key, there in members.items()
            if key in forms
        ]

    def _rows(self, name: str, columns: Sequence[str]) -> Iterable[TableRow]:
        plain, packed = self._path / name, self._path / f"{name}.gz"
        path = next((path for path in (plain, packed) if path.is_file()), None)
        return () if path is None else read_rows(path, columns)

    def _members(self) -> dict[tuple[str, str], dict[str, RunMember]]:
        reached: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        members: dict[tuple[str, str], dict[str, RunMember]] = defaultdict(dict)
        for row in self._rows("outcomes.csv", ("run", "repeat", "instance", "workload", "outcome", "value")):
            key, instance = (row.text("run"), row.text("repeat")), row.text("instance")
            value = row.number("value", low=None)
            if value is not None:
                reached[key][instance][row.text("outcome")] = value
            members[key].setdefault(instance, RunMember(instance, row.text("workload")))
        solo: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        for row in self._rows("colocations.csv", ("run", "repeat", "instance", "workload", "outcome", "solo")):
            key, instance = (row.text("run"), row.text("repeat")), row.text("instance")
            for column, into in (("solo", solo), ("colocated", reached)):
                value = row.number(column)
                if value is not None:
                    into[key][instance].setdefault(row.text("outcome"), value)
            members[key][instance] = _member(row)
        return {
            key: {
                name: replace(member, reached=reached[key][name], solo=solo[key][name])
                for name, member in there.items()
            }
            for key, there in members.items()
        }

    def _platforms(self) -> dict[tuple[str, str], str]:
        rows = self._rows("colocations.csv", ("run", "repeat", "platform"))
        return {(row.text("run"), row.text("repeat")): row.text("platform") for row in rows}

    def _only_platform(self) -> str:
        """The dataset's platform; "" where it has several."""
        names = [row.text("platform") for row in self._rows("platforms.csv", ("platform",))]
        return names[0] if len(names) == 1 else ""

    def _metrics(self) -> dict[tuple[str, str], dict[tuple[str, str, str], float]]:
        found: dict[tuple[str, str], dict[tuple[str, str, str], float]] = defaultdict(dict)
        for row in self._rows("metrics.csv", ("run", "repeat", "instance", "scope", "metric", "value")):
            value = row.number("value", low=None)
            if value is not None:
                where = (row.text("instance"), row.text("scope"), row.text("metric"))
                found[row.text("run"), row.text("repeat")][where] = value
        return found


def _member(row: TableRow) -> RunMember:
    load = row.number("load")
    return RunMember(
        row.text("instance"), row.text("workload"), 1.0 if load is None else load, row.text("pinning"),
        row.number("cap_percent"), row.number("weight"), row.text("net_mode"), row.number("net_rate_mbit"),
        row.number("disk_limit_mb_s"),
    )  # fmt: skip
