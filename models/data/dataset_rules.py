"""What a dataset may be used for, whose CPU time is a load generator's, and which ratios are faults of measurement."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

from models.data.profile import WorkloadProfile
from models.data.tables import CellRule, DatasetError, TableRow, find_table, read_rows
from profiler.demand import Demand
from profiler.metrics import ANSWERED, artefact_of
from profiler.observed import Colocation, Instance, IsolationSettings, Outcome, Pinning, parse_cpus

# What a dataset may be used for: to learn from, to judge by, or neither (docs/decisions/0176).

Status = Literal["train", "judge", "findings", "historical"]
_FLAGS = {"learn": True, "hidden": False}


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """`status` of dataset.yaml: `train` is learned from unless other datasets are named, `judge` is judged by, and
    learned from where it is named, `findings` shows single findings, and `historical` has been superseded by others.

    `hidden` datasets are kept to judge: nothing learns from them, even where they are named.
    """

    status: Status = "train"
    hidden: bool = False
    superseded_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> DatasetStatus:
        """By the fields of dataset.yaml; without `status` it is `train`, or `judge` where `learn` is false.

        DatasetError names the field that is wrong.
        """
        flags = {name: meta.get(name, usual) for name, usual in _FLAGS.items()}
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise DatasetError(f"dataset.yaml: field {name} must be true or false, not {str(value)[:40]!r}")
        status = meta.get("status", "train" if flags["learn"] and not flags["hidden"] else "judge")
        if status not in get_args(Status):
            known = ", ".join(get_args(Status))
            raise DatasetError(f"dataset.yaml: field status must be one of {known}, not {str(status)[:40]!r}")
        if status == "train" and not (flags["learn"] and not flags["hidden"]):
            raise DatasetError("dataset.yaml: status is train, and learn or hidden says that nothing learns from it")
        by = meta.get("superseded_by", [])
        if not (isinstance(by, list) and all(isinstance(name, str) and name.strip() for name in by)):
            raise DatasetError("dataset.yaml: field superseded_by must be a list of names of datasets")
        if bool(by) != (status == "historical"):
            raise DatasetError("dataset.yaml: superseded_by and the status historical need each other")
        return cls(status, flags["hidden"], tuple(by))

    @property
    def learned_by_default(self) -> bool:
        """Whether models learn from it when no dataset is named."""
        return self.status == "train"

    @property
    def judged_by_default(self) -> bool:
        """Whether tables of errors show it when no dataset is named; hidden ones are asked for by themselves."""
        return self.status in {"train", "judge"} and not self.hidden


def check_learnable(datasets: Sequence[Any]) -> None:
    """DatasetError where one of these datasets (models.data.dataset.Dataset) is kept to judge."""
    for dataset in datasets:
        if dataset.status.hidden:
            raise DatasetError(
                f"{dataset.name} is kept to judge (hidden: true in its dataset.yaml): nothing may be learned from it"
            )


# Load generators of measured runs: they use CPU time beside the instances, and are not instances themselves.
#
# A run's table `runs.csv` gives the CPUs of each instance's generator (`clients`) and the CPU time that it used
# (`generator_percent`, 100 = one CPU). A co-location that leaves the generator out makes an instance beside it look
# slowed by its neighbour.

OUTSIDE = "outside"  # `generators` of dataset.yaml: they use no CPU of the measured host
SUFFIX = ".generator"  # behind an instance's id: its generator's
CPU_OF_GENERATOR = "host.load_generator_cpu"  # of a profile, %: what the generator used while its instance ran alone
_COLUMNS = ("run", "repeat", "instance", "clients", "generator_percent")
_RULES = {
    "run": CellRule(required=True),
    "repeat": CellRule(),
    "instance": CellRule(required=True),
    "clients": CellRule(),
    "generator_percent": CellRule(number=True),
}
_Runs = Mapping[tuple[str, str], Mapping[str, tuple[tuple[int, ...], float]]]


def with_generators(
    path: Path, meta: Mapping[str, Any], profiles: Sequence[WorkloadProfile], colocations: tuple[Colocation, ...]
) -> tuple[Colocation, ...]:
    """The co-locations of the dataset at `path` with the load generators of their runs.

    They stay as they are where dataset.yaml (`meta`) says that generators run outside of the host, where its instances
    have a cap together, which the generators are not under, and without a table of runs. DatasetError names the cell
    that cannot be read.
    """
    outside = meta.get("generators") == OUTSIDE or bool((meta.get("circumstances") or {}).get("host_cap_percent"))
    runs = {} if outside else _read(path)
    if not runs:
        return colocations
    alone = {
        (one.platform, one.name): one.metrics[CPU_OF_GENERATOR] for one in profiles if CPU_OF_GENERATOR in one.metrics
    }
    return tuple(replace(one, generators=_of(one, runs, alone)) for one in colocations)


def _read(path: Path) -> _Runs:
    table = find_table(path, "runs")
    found: dict[tuple[str, str], dict[str, tuple[tuple[int, ...], float]]] = {}
    for row in read_rows(table, ()) if table else ():
        if not all(column in row.cells for column in _COLUMNS):
            return {}
        cells = row.read(_RULES)
        if cells["clients"] and cells["generator_percent"]:
            place = _cpus(row, cells["clients"])
            found.setdefault((cells["run"], cells["repeat"]), {})[cells["instance"]] = place, cells["generator_percent"]
    return found


def _cpus(row: TableRow, text: str) -> tuple[int, ...]:
    try:
        return parse_cpus(text)
    except ValueError as error:
        raise row.error("clients", str(error)) from None


def _of(colocation: Colocation, runs: _Runs, alone: Mapping[tuple[str, str], float]) -> tuple[Instance, ...]:
    """The generators that worked in a co-location, which may be one state of a run (RUN/1+3)."""
    key = colocation.run, colocation.repeat
    places = runs.get(key) or runs.get((colocation.run.rpartition("/")[0], colocation.repeat), {})
    instances = {outcome.instance.id: outcome.instance for outcome in colocation.outcomes}
    return tuple(
        _generator(instance, *places[name], alone.get((colocation.platform, instance.workload or "")))
        for name, instance in instances.items()
        if name in places
    )


def _generator(instance: Instance, cpus: tuple[int, ...], used: float, alone: float | None) -> Instance:
    """A closed loop with the demand that it has while its instance runs alone, else with what it `used` in the run."""
    percent = used if alone is None else alone * min(instance.load, 1.0)
    vcpus = min(max(math.ceil(percent / 100), 1), len(cpus))
    demand = Demand(min(percent / 100, float(vcpus)), windows=1.0, open_loop=0.0, common=0.0, origin="measured")
    settings = IsolationSettings(pinning=Pinning((cpus,) * vcpus))
    return Instance(id=instance.id + SUFFIX, vcpus=vcpus, settings=settings, demand={"cpu": demand})


# Takes faults of on/off measurements out of a dataset's ratios: what open loops carry over between states, and T/B
# above 1 that no neighbour can give (decision 175).
#
# Only outcomes with a standard error are looked at (`ratio_se` of the table of co-locations), which on/off runs have.

_Kind = tuple[str, str, str, float, IsolationSettings]  # platform, pinning form, workload, load, settings


@dataclass(frozen=True, slots=True)
class ArtefactCounts:
    """Rows of throughput by what reading did to them; the others are as they were measured.

    `open_loops` are relative to their usual value alone, `at_most_asked` of these would have been above it, and what is
    `set_aside` has no outcome: `above_alone` for a ratio above 1 + 3 standard errors, `unsure` for an error that says
    nothing.
    """

    rows: int = 0
    open_loops: int = 0
    at_most_asked: int = 0
    above_alone: int = 0
    unsure: int = 0

    @property
    def set_aside(self) -> int:
        return self.above_alone + self.unsure

    def __str__(self) -> str:
        return (
            f"{self.open_loops} of {self.rows} rows are of open loops and relative to their usual value alone, "
            f"{self.at_most_asked} of them held at what was asked; {self.set_aside} rows are set aside, "
            f"{self.above_alone} above 1 + 3 standard errors and {self.unsure} with an error that says nothing"
        )


def without_artefacts(colocations: Sequence[Colocation]) -> tuple[tuple[Colocation, ...], ArtefactCounts]:
    """The same co-locations with ratios by the rule, and how many rows that changed.

    An instance whose outcome is set aside stays a neighbour: its `colocated` is None.
    """
    alone: dict[_Kind, list[float]] = defaultdict(list)
    for one in colocations:
        for outcome in one.outcomes:
            if _asks(outcome) and outcome.solo is not None:
                alone[_kind(one, outcome)].append(outcome.solo)
    usual = {kind: median(values) for kind, values in alone.items()}
    found: Counter[str] = Counter()

    def ruled(one: Colocation, outcome: Outcome) -> Outcome:
        if outcome.outcome != "throughput" or outcome.ratio_se is None or not outcome.solo or outcome.colocated is None:
            return outcome
        found["rows"] += 1
        if _asks(outcome):
            solo = usual[_kind(one, outcome)]
            found["open_loops"] += 1
            found["at_most_asked"] += outcome.colocated > solo
            return replace(outcome, solo=solo, colocated=min(outcome.colocated, solo))
        artefact = artefact_of(outcome.colocated / outcome.solo, outcome.ratio_se)
        if artefact is None:
            return outcome
        found[artefact] += 1
        return replace(outcome, colocated=None)

    changed = tuple(replace(one, outcomes=tuple(ruled(one, each) for each in one.outcomes)) for one in colocations)
    return changed, ArtefactCounts(**found)


def _asks(outcome: Outcome) -> bool:
    return outcome.outcome == "throughput" and outcome.unit == ANSWERED and outcome.ratio_se is not None


def _kind(one: Colocation, outcome: Outcome) -> _Kind:
    """What an open loop alone depends on; names of the lab's runs begin with their pinning form."""
    instance = outcome.instance
    form = one.run.partition(":")[0]
    return one.platform, form, instance.workload or "", instance.load, replace(instance.settings, pinning=None)
