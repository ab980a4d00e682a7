"""Policies in worlds: VMs that come one after the other, the advisor and every rule, and tables with intervals.

A world knows hosts, the VMs that are there and those that come, and judges where they went. A policy is a function of
a world. `advisor.scheduling.rules` has every rule of thumb; a world names the columns that it knows, and each rule that
needs no others takes part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from advisor.domain import Instance, Objective, PlacementRequest
from advisor.placement.decision import recommend
from advisor.prediction.active import ActivePredictor, QuestionContext
from advisor.scheduling.rules import Rule, choose, known_by
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools, Floats
from models.prediction import Predictor

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RESAMPLES = 2000

Figures = Mapping[str, float]
Found = Mapping[str, Sequence[Figures]]
"""By policy the figures of each world, in one order of worlds."""


class World(Protocol):
    """A cloud with new VMs, in the order of coming; `columns` is what rules may know of its hosts."""

    @property
    def new_vms(self) -> Sequence[object]: ...

    @property
    def columns(self) -> Collection[str]: ...

    def arriving(self) -> Arriving:
        """The hosts before the first one comes."""
        ...

    def snapshot(self) -> ClusterSnapshot:
        """The same as the advisor knows it."""
        ...

    def asked(self, number: int) -> Instance:
        """A new VM as the question describes it."""
        ...

    def known(self, placed: Sequence[int]) -> Mapping[str, Instance]:
        """The instances of which something is new after these came, each to the host of this number, as the advisor
        knows them now."""
        ...

    def judged(self, placed: Sequence[int]) -> Figures:
        """What comes of it when the new VMs go to these hosts."""
        ...


@dataclass(slots=True)
class Arriving:
    """What each of H hosts that are alike holds while VMs come, (H,): numbers of VMs, vCPUs, MB and demanded CPUs.

    `coming` gives vCPUs, MB and demand of the new VM with a number.
    """

    coming: Callable[[int], tuple[float, float, float]]
    room_vcpus: float
    room_memory_mb: float
    cpus: int
    random: np.random.Generator
    held: Floats  # (4, H)
    columns: ClassVar = ("chance", "instances", "free_vcpus", "free_memory_mb", "cpus", "load", "load_after")

    def fits(self, number: int) -> Bools:
        """Where a new VM has room by what hosts promise, (H,)."""
        vcpus, memory_mb, _ = self.coming(number)
        return np.asarray((self.held[1] + vcpus <= self.room_vcpus) & (self.held[2] + memory_mb <= self.room_memory_mb))

    def column(self, name: str, number: int) -> Floats:
        """A column of `advisor.scheduling.rules.COLUMNS`, for this new VM."""
        instances, vcpus, memory_mb, load = self.held
        found: Mapping[str, Floats] = {
            "instances": instances, "free_vcpus": self.room_vcpus - vcpus, "load": load,
            "free_memory_mb": self.room_memory_mb - memory_mb, "cpus": np.full_like(load, self.cpus),
        }  # fmt: skip
        if name == "chance":
            return self.random.random(len(load))
        return load + self.coming(number)[2] if name == "load_after" else found[name].copy()

    def put(self, number: int, host: int) -> None:
        """A new VM goes to this host."""
        self.add(host, *self.coming(number))

    def add(self, host: int, *sizes: float) -> None:
        """A VM of so many vCPUs, MB and demanded CPUs is on this host."""
        self.held[:, host] += (1.0, *sizes)


Policy = Callable[[World], Sequence[int]]
"""The host of each new VM, by position."""
Playing = TypeVar("Playing", bound=World)


@dataclass(frozen=True, slots=True)
class ByRule:
    """Each new VM on the host that a rule prefers."""

    rule: Rule

    def __call__(self, world: World) -> Sequence[int]:
        cloud, placed = world.arriving(), []
        for number in range(len(world.new_vms)):
            host = choose(self.rule, cloud.fits(number), lambda name, number=number: cloud.column(name, number))  # type: ignore[misc]
            if host is None:
                raise ValueError(f"no host has room for new VM {number}")
            cloud.put(number, host)
            placed.append(host)
        return placed


@dataclass(frozen=True, slots=True)
class Advised:
    """The advisor is asked about each new VM in turn, which goes to the host that the answer names first."""

    predictor: Predictor
    objective: Objective = "worst"

    def __call__(self, world: World) -> Sequence[int]:
        snapshot = world.snapshot()
        position = {host.id: at for at, host in enumerate(snapshot.hosts)}
        context, placed = QuestionContext(ActivePredictor(self.predictor), NOW, math.inf), list[int]()
        for number in range(len(world.new_vms)):
            if placed:
                snapshot = snapshot.changed(seen={}, pending=(), taken_at=NOW, instances=world.known(placed))
            request = PlacementRequest(
                world.asked(number), objective=self.objective, limit=1, explain=False, commands=False, mitigate=False
            )
            placed.append(position[recommend(snapshot, context, request).candidates[0].host])
        return placed


def rules(columns: Collection[str], *, settings: bool = False) -> dict[str, Policy]:
    """Every rule that needs only these columns; `settings`: with all settings of each."""
    return {name: ByRule(rule) for name, rule in known_by(columns, settings=settings).items()}


def played(worlds: Sequence[Playing], policies: Mapping[str, Callable[[Playing], Sequence[int]]]) -> Found:
    """What each policy comes to in each world."""
    return {name: [world.judged(policy(world)) for world in worlds] for name, policy in policies.items()}


def interval(values: Sequence[float], *, seed: int = 0, percent: float = 95.0) -> list[float] | None:
    """Bootstrap interval of the mean of independent values; None of fewer than two."""
    if len(values) < 2:
        return None
    drawn = np.random.default_rng(seed).choice(np.array(values), (RESAMPLES, len(values)))
    edge = (100 - percent) / 2
    return [float(one) for one in np.percentile(drawn.mean(axis=1), (edge, 100 - edge))]


def differences(found: Found, one: str, other: str, figure: str) -> list[float]:
    """A figure of one policy less that of another, world by world."""
    return [mine[figure] - theirs[figure] for mine, theirs in zip(found[one], found[other], strict=True)]


def with_interval(values: Sequence[float], digits: int = 1, **options: float) -> str:
    """The mean of values and its interval, as `1.0 (0.5 to 1.5)`."""
    low, high = interval(values, **options) or (math.nan, math.nan)  # type: ignore[arg-type]
    return f"{np.mean(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
