"""A small cloud of containers of six kinds, each with a daily curve of its own: who is there, and who comes.

Demand is in CPUs of a host, one value for each second; a second stands for minutes of a day.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.arrays import Floats

HOSTS = 10
HOST_CPUS = 16
VCPUS = 8  # of a container
MOST = 8  # containers on a host, which may promise four vCPUs for each CPU, the default
RESIDENTS, NEWCOMERS = 24, 30
LOAD = 0.52  # of all CPUs, over the day, with every instance there: what is expected of these kinds
MEMORY_MB = 16_384.0  # of a host
KINDS = ("web", "shop", "db", "batch", "ci", "dev")
_ODDS = (0.24, 0.16, 0.2, 0.16, 0.12, 0.12)
SIZES_MB = {"web": 1024.0, "shop": 1024.0, "db": 2048.0, "batch": 1024.0, "ci": 2048.0, "dev": 512.0}
_LEVELS = {"web": 0.30, "shop": 0.28, "db": 0.30, "batch": 0.22, "ci": 0.25, "dev": 0.04}  # one to the other
_SPREAD = 0.35  # of the logarithm of a container's level, within its kind
_NOISE, _MEMORY = 0.25, 0.7  # of the logarithm of each value; how much of it the next one keeps


@dataclass(frozen=True, slots=True)
class DailyContainer:
    """A container with VCPUS; `curve` (T,) is its demand at T times of the day, evenly spaced."""

    name: str
    kind: str
    curve: Floats
    seed: int

    @property
    def memory_mb(self) -> float:
        return SIZES_MB[self.kind]

    def demand(self, begin_h: float, step_h: float, count: int) -> Floats:
        """What it asks for at `count` times from an hour of the day on; (count,), CPUs.

        The day is the same each time, what is by chance is not.
        """
        hours = (begin_h + step_h * np.arange(count)) % 24
        calm = np.interp(hours, np.linspace(0, 24, self.curve.size + 1), np.append(self.curve, self.curve[0]))
        rng = np.random.default_rng([self.seed, round(60 * begin_h), count])
        noise = np.empty(count)
        value = rng.normal()
        for at in range(count):
            value = _MEMORY * value + math.sqrt(1 - _MEMORY**2) * rng.normal()
            noise[at] = value
        return np.asarray(np.minimum(calm * np.exp(_NOISE * noise - _NOISE**2 / 2), float(VCPUS)))


@dataclass(frozen=True, slots=True)
class NewcomerWorld:
    """Residents with the host of each, and newcomers in the order in which they come."""

    residents: tuple[DailyContainer, ...]
    host_of: tuple[int, ...]
    newcomers: tuple[DailyContainer, ...]


def draw(world: int, newcomers: int) -> NewcomerWorld:
    """World number `world` with set number `newcomers` of those who come."""
    rng = np.random.default_rng([31, world])
    residents = tuple(_container(rng, f"{kind}-{number}", kind) for number, kind in enumerate(_kinds(rng, RESIDENTS)))
    places = rng.permutation(np.repeat(np.arange(HOSTS), math.ceil(RESIDENTS / HOSTS) + 1))[:RESIDENTS]
    fresh = np.random.default_rng([37, world, newcomers])
    coming = tuple(
        _container(fresh, f"{kind}-{RESIDENTS + number}", kind) for number, kind in enumerate(_kinds(fresh, NEWCOMERS))
    )
    return NewcomerWorld(residents, tuple(places.tolist()), coming)


def _kinds(rng: np.random.Generator, count: int) -> list[str]:
    """At least one of each kind, in random order."""
    some = [*KINDS, *rng.choice(KINDS, count - len(KINDS), p=_ODDS).tolist()]
    return [str(some[at]) for at in rng.permutation(count)]


def _container(rng: np.random.Generator, name: str, kind: str) -> DailyContainer:
    expected = sum(odds * _LEVELS[each] for each, odds in zip(KINDS, _ODDS, strict=True))
    each = LOAD * HOSTS * HOST_CPUS / (RESIDENTS + NEWCOMERS)
    level = each * _LEVELS[kind] / expected * float(rng.lognormal(-(_SPREAD**2) / 2, _SPREAD))
    shape = _shape(rng, kind)
    return DailyContainer(name, kind, level * shape / shape.mean(), int(rng.integers(1 << 31)))


def _shape(rng: np.random.Generator, kind: str) -> Floats:
    """The daily curve of a kind: 144 values, of any level."""
    hours = np.arange(144) / 6
    late = float(rng.normal(0, 0.5))  # hours

    def hill(at: float, wide: float) -> Floats:
        away = (hours - at - late + 12) % 24 - 12
        return np.asarray(np.exp(-((away / wide) ** 2) / 2))

    if kind == "web":
        return np.asarray(0.2 + hill(11, 2.0) + hill(15.5, 2.5))
    if kind == "shop":
        return np.asarray(0.2 + 1.4 * hill(20, 2.0))
    if kind == "db":
        return np.asarray(1.0 + 0.5 * hill(14, 4.0))
    if kind == "batch":
        return np.asarray(0.06 + 1.0 * (np.abs((hours - 3.0 - late + 12) % 24 - 12) < 2.0), dtype=np.float64)
    if kind == "ci":
        office = (hours > 8.5) & (hours < 18.5)
        return np.asarray(0.05 + 1.0 * office * (rng.random(hours.size // 3).repeat(3) < 0.5), dtype=np.float64)
    return np.asarray(0.3 + 3.0 * (rng.random(hours.size) < 0.05), dtype=np.float64)


def from_0_to_1(values: Sequence[float] | Floats) -> Floats:
    """As Nova's weighers scale what hosts have: 0 where it is least, 1 where it is most, 0 where all have the same."""
    found = np.asarray(values, dtype=np.float64)
    width = found.max() - found.min()
    return np.asarray((found - found.min()) / width if width > 0 else np.zeros_like(found))


def mean_and_ends(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean over evenings, and both ends of its 90 % bootstrap interval."""
    drawn = np.random.default_rng(3).choice(np.array(values), (2000, len(values)))
    low, high = np.quantile(drawn.mean(axis=1), (0.05, 0.95))
    return float(np.mean(values)), float(low), float(high)
