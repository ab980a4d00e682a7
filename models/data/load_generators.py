"""Load generators of measured runs: they use CPU time beside the instances, and are not instances themselves.

A run's table `runs.csv` gives the CPUs of each instance's generator (`clients`) and the CPU time that it used
(`generator_percent`, 100 = one CPU). A co-location that leaves the generator out makes an instance beside it look
slowed by its neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from models.data.profile import WorkloadProfile
from models.data.tables import CellRule, TableRow, find_table, read_rows
from profiler.demand import Demand
from profiler.observed import Colocation, Instance, IsolationSettings, Pinning, parse_cpus

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
