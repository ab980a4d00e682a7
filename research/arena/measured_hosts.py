"""Worlds: hosts whose slots were measured together, and the measured T/B of every set of workloads on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from models.data.dataset import Dataset
from models.data.profile import WorkloadProfile
from models.features.examples import measured
from profiler.observed import Colocation, Host, Instance, IsolationSettings

LEAST_DENSE = 0.5  # of a world's pairs must have been measured: where fewer were, there is nothing to choose from

Situation = tuple[str, ...]  # the workloads on a host, sorted: its seats are not distinguished


class NoWorldError(ValueError):
    """No cloud can be made of a dataset; the message says why."""


@dataclass(frozen=True, slots=True)
class MeasuredSet:
    """Mean T/B of each workload of a set, in its order, over `repeats`; `error` is the standard error of their sum, 0 =
    measured once."""

    ratios: tuple[float, ...]
    error: float
    repeats: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of(cls, repeats: Sequence[tuple[float, ...]]) -> MeasuredSet:
        sums = np.sum(repeats, axis=1)
        error = float(np.std(sums, ddof=1) / np.sqrt(len(sums))) if len(sums) > 1 else 0.0
        return cls(tuple(np.mean(repeats, axis=0).tolist()), error, tuple(repeats))


@dataclass(frozen=True, slots=True)
class MeasuredWorld:
    """Hosts of one platform with a seat per pinning of `pins`; `measured` by set; `instances` by workload as they were
    measured, but for the pinning. A set that was never measured is offered to no policy."""

    name: str
    host: Host
    pins: tuple[str, ...]
    measured: Mapping[Situation, MeasuredSet]
    instances: Mapping[str, Instance]
    profiles: tuple[WorkloadProfile, ...]
    _after: dict[tuple[Situation, str], Situation | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def workloads(self) -> tuple[str, ...]:
        """Every workload, sorted."""
        return tuple(sorted(self.instances))

    @property
    def seats(self) -> int:
        """How many instances a host takes."""
        return len(self.pins)

    def host_named(self, name: str) -> Host:
        """A host with a MB of memory for each seat, so that the advisor knows how many there are."""
        return replace(self.host, id=name, memory_mb=float(self.seats), memory_overcommit=1.0)

    def seated(
        self, name: str, workload: str, host: str | None = None, settings: IsolationSettings | None = None
    ) -> Instance:
        """An instance that takes one seat of a host; without settings it runs on any of the host's CPUs."""
        return replace(
            self.instances[workload],
            id=name,
            host=host,
            memory_mb=1.0,
            disk_gb=0.0,
            min_throughput_ratio=None,
            settings=settings or IsolationSettings(),
        )

    def after(self, situation: Situation, workload: str) -> Situation | None:
        """The host with this workload added; None when it has no free slot or the result was never measured."""
        key = (situation, workload)
        if key not in self._after:
            there = tuple(sorted((*situation, workload)))
            self._after[key] = there if self.known(there) else None
        return self._after[key]

    def known(self, situation: Situation) -> bool:
        """Whether outcomes are known; they always are for an instance alone, whose ratio is 1."""
        return len(situation) <= 1 or situation in self.measured

    def ratios(self, situation: Situation) -> tuple[float, ...]:
        """Measured T/B of all instances, by workload; 1 for an instance alone."""
        return self.measured[situation].ratios if len(situation) > 1 else (1.0,) * len(situation)

    def error(self, situation: Situation) -> float:
        """Standard error of the sum of these ratios."""
        return self.measured[situation].error if len(situation) > 1 else 0.0

    def situations(self) -> list[Situation]:
        """Everything that a host can come to by arrivals, the empty one first."""
        reached: dict[Situation, None] = {(): None}
        open_ones: list[Situation] = [()]
        while open_ones:
            situation = open_ones.pop()
            new = [self.after(situation, workload) for workload in self.workloads]
            for one in new:
                if one is not None and one not in reached:
                    reached[one] = None
                    open_ones.append(one)
        return list(reached)


def halves(world: MeasuredWorld) -> tuple[MeasuredWorld, MeasuredWorld] | None:
    """The world of every other repeat of each set, and that of the repeats between; None where most have one only."""
    often = {together: one.repeats for together, one in world.measured.items() if len(one.repeats) > 1}
    if len(often) < LEAST_DENSE * len(world.measured):
        return None
    one, other = (
        replace(
            world, measured={together: MeasuredSet.of(repeats[at::2]) for together, repeats in often.items()}, _after={}
        )
        for at in (0, 1)
    )
    return one, other


def at_most_alone(world: MeasuredWorld) -> MeasuredWorld:
    """The same world with T/B limited to 1: no instance counts as faster than alone."""
    capped = {
        together: replace(one, ratios=tuple(min(ratio, 1.0) for ratio in one.ratios))
        for together, one in world.measured.items()
    }
    return replace(world, measured=capped, _after={})


def worlds(dataset: Dataset) -> Iterator[MeasuredWorld]:
    """Every world that a dataset's largest platform makes: by pinning and driver domain, of two seats, and of as many
    as were ever measured together where these are more. NoWorldError where none has enough pairs."""
    groups: dict[tuple[str, tuple[str, ...], tuple[int, ...]], dict[Situation, list[tuple[float, ...]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    instances: dict[tuple[tuple[str, ...], str], Instance] = {}
    full = _full_loads(dataset)
    for colocation in dataset.colocations:
        instances_there = _plain(colocation, full)
        ratios = measured(colocation, "throughput")
        if len(instances_there) < 2 or len(ratios) < len(instances_there):
            continue
        pins = tuple(sorted({str(one.settings.pinning or "") for one in instances_there}))
        by_workload: dict[str, list[float]] = defaultdict(list)
        for one in instances_there:
            by_workload[one.workload or ""].append(ratios[one.id])
            instances.setdefault((pins, one.workload or ""), one)
        together = tuple(sorted(one.workload or "" for one in instances_there))
        mean = tuple(float(np.mean(by_workload[workload])) for workload in together)
        groups[colocation.platform, pins, colocation.driver_cpus][together].append(mean)
    if not groups:
        raise NoWorldError(f"{dataset.name}: no two instances were measured together without caps, weights or limits")
    sizes: dict[str, int] = defaultdict(int)
    for (platform, _, _), sets in groups.items():
        sizes[platform] += len(sets)
    largest = max(sorted(sizes), key=lambda platform: sizes[platform])
    sparse: list[NoWorldError] = []
    for (platform, pins, driver_cpus), sets in sorted(groups.items()):
        if platform == largest:
            host = replace(dataset.platforms[platform], driver_cpus=driver_cpus, platform=platform)
            outcomes = {together: MeasuredSet.of(runs) for together, runs in sets.items()}
            try:
                yield from _by_seats(dataset, host, pins, outcomes, instances)
            except NoWorldError as error:
                sparse.append(error)
    if len(sparse) == sum(platform == largest for platform, *_ in groups):
        raise sparse[0]


def _by_seats(
    dataset: Dataset,
    host: Host,
    pins: tuple[str, ...],
    outcomes: Mapping[Situation, MeasuredSet],
    instances: Mapping[tuple[tuple[str, ...], str], Instance],
) -> Iterator[MeasuredWorld]:
    workloads = sorted({workload for together in outcomes if len(together) == 2 for workload in together})
    possible = len(workloads) * (len(workloads) + 1) // 2
    pairs = sum(len(together) == 2 for together in outcomes)
    if not possible or pairs < LEAST_DENSE * possible:
        raise NoWorldError(
            f"{dataset.name}: on {host.platform} {pairs} of {possible} pairs of {len(workloads)} workloads were "
            "measured, too few for hosts to choose from"
        )
    most = max(len(together) for together in outcomes) if len(pins) == 1 else 2
    for seats in sorted({2, most}):
        name = _mode(pins, host.driver_cpus) + (f", up to {seats}" if seats > 2 else "")
        yield MeasuredWorld(
            name=name,
            host=replace(host, cpu_overcommit=1e3, memory_overcommit=1e3, driver_overcommit=1e3),  # a seat is a seat
            pins=pins if len(pins) > 1 else pins * seats,
            measured={
                together: outcome
                for together, outcome in outcomes.items()
                if len(together) <= seats and set(together) <= set(workloads)
            },
            instances={workload: instances[pins, workload] for workload in workloads},
            profiles=dataset.profiles,
        )


def _mode(pins: Sequence[str], driver_cpus: Sequence[int]) -> str:
    if len(pins) > 1:
        name = "different CPUs"
    elif not pins[0]:
        name = "unpinned"
    else:
        name = "shared CPUs" if "-" in pins[0] or "," in pins[0] else "same CPU"
    return name + (", driver apart" if driver_cpus else "")


def _full_loads(dataset: Dataset) -> dict[str, float]:
    """The highest load at which each workload was measured: some are defined at a part load."""
    found: dict[str, float] = defaultdict(float)
    for colocation in dataset.colocations:
        for outcome in colocation.outcomes:
            workload = outcome.instance.workload or ""
            found[workload] = max(found[workload], outcome.instance.load)
    return found


def _plain(colocation: Colocation, full: Mapping[str, float]) -> tuple[Instance, ...]:
    """The instances of a run at their full load where none is held back by a setting, else none."""
    there = {outcome.instance.id: outcome.instance for outcome in colocation.outcomes}
    for one in there.values():
        network = one.settings.network
        held_back = replace(one.settings, pinning=None, network=None) != IsolationSettings()
        if one.load < full[one.workload or ""] or held_back or (network is not None and network.mode == "shared"):
            return ()
    return tuple(there.values())
