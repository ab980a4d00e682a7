"""Evenings: a small cloud of containers of six kinds, each with a daily curve of its own, to which others come.

Demand is in CPUs of a host, one value for each second; a second stands for minutes of a day. Residents are known as
after one day of windows. Of new VMs name and size are known, and once they are there the windows that an agent saw.
The judge runs no container: each host is a queue of work, which is short while work is left over; bursts are not
looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from advisor.domain import Host, Instance, Inventory
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.profiling.demand_estimation import from_trace
from profiler.demand import Demand
from research.arena.contest import NOW, Arriving

HOSTS = 10
HOST_CPUS = 16
VCPUS = 8  # of a container
MOST = 8  # containers on a host, which may promise four vCPUs for each CPU, the default
RESIDENTS, NEW_VMS = 24, 30
LOAD = 0.52  # of all CPUs, over the day, with every instance there: what is expected of these kinds
MEMORY_MB = 16_384.0  # of a host
STEPS = 32  # of the day after, as `newcomer_runs` measures
WINDOWS = 288  # of the day before, of five minutes
WINDOWS_EACH = 0.48  # that pass until the next new VM comes
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
class Evening:
    """Residents with the host of each, and new VMs in the order of coming.

    `hours`: the advisor knows how demand varied over the hours; `new_vm_known`: and the demand of new VMs.
    `foresight`: rules know what every container will ask for the next day.
    """

    residents: tuple[DailyContainer, ...]
    host_of: tuple[int, ...]
    new_vms: tuple[DailyContainer, ...]
    hours: bool = True
    new_vm_known: bool = False
    foresight: bool = False
    columns: ClassVar = (*Arriving.columns, "day", "day_after")

    def arriving(self) -> EveningHosts:
        """The hosts before the first one comes."""
        begin_h = 48.0 if self.foresight else 0.0
        days = [one.demand(begin_h, 24 / STEPS, STEPS) for one in self.residents]
        of_kind: dict[str, list[Floats]] = {}
        for one, day in zip(self.residents, days, strict=True):
            of_kind.setdefault(one.kind, []).append(day)
        expected = [
            one.demand(begin_h, 24 / STEPS, STEPS) if self.foresight else np.asarray(np.mean(of_kind[one.kind], axis=0))
            for one in self.new_vms
        ]
        hosts = EveningHosts(
            lambda number: (VCPUS, self.new_vms[number].memory_mb, float(expected[number].mean())),
            MOST * VCPUS, MEMORY_MB, HOST_CPUS, np.random.default_rng([one.seed for one in self.new_vms]),
            np.zeros((4, HOSTS)), day=np.zeros((HOSTS, STEPS)), expected=expected,
        )  # fmt: skip
        for one, host, day in zip(self.residents, self.host_of, days, strict=True):
            hosts.add(host, VCPUS, one.memory_mb, float(day.mean()))
            hosts.day[host] += day
        return hosts

    def judged(self, placed: Sequence[int]) -> Mapping[str, float]:
        """`short`: the part of the next day (%) in which an instance is on a host with work left over, mean of all."""
        demanded = np.array([one.demand(48.0, 24 / STEPS, STEPS) for one in (*self.residents, *self.new_vms)])
        host_of = np.array([*self.host_of, *placed])
        short = np.zeros(len(host_of))
        for host in range(HOSTS):
            there = host_of == host
            left, over = 0.0, []
            for value in demanded[there].sum(axis=0).tolist():
                left = max(0.0, left + value - HOST_CPUS)
                over.append(left > 0)
            short[there] = np.mean(over)
        return {"short": 100 * float(short.mean())}

    def snapshot(self) -> ClusterSnapshot:
        """The cloud with its residents, as the advisor knows it."""
        hosts = tuple(Host(f"h{at}", "lxc", HOST_CPUS, MEMORY_MB) for at in range(HOSTS))
        residents = tuple(
            replace(self._instance(one, known=True), host=f"h{at}")
            for one, at in zip(self.residents, self.host_of, strict=True)
        )
        seen = {host.id: NOW for host in hosts}
        return ClusterSnapshot.build(Inventory(hosts, residents, ()), seen=seen, pending=(), taken_at=NOW)

    def asked(self, number: int) -> Instance:
        """A new VM as the question has it."""
        return self._instance(self.new_vms[number], known=self.new_vm_known)

    def known(self, placed: Sequence[int]) -> Mapping[str, Instance]:
        """Those who came, one each WINDOWS_EACH windows, with what was measured of them since."""
        last = len(placed) - 1
        found = {self.new_vms[last].name: replace(self.asked(last), host=f"h{placed[last]}")}
        for at, (one, host) in enumerate(zip(self.new_vms, placed, strict=False)):
            windows = 0 if self.new_vm_known else int(WINDOWS_EACH * (len(placed) - at))
            if windows:
                demand = _as_measured(one.demand(24.0, 24 / WINDOWS, windows))
                found[one.name] = replace(self.asked(at), host=f"h{host}", demand={"cpu": demand})
        return found

    def _instance(self, one: DailyContainer, *, known: bool) -> Instance:
        demand = _as_measured(one.demand(0.0, 24 / WINDOWS, WINDOWS)) if known else None
        if demand is not None and not self.hours:
            demand = replace(demand, hours=())
        return Instance(one.name, VCPUS, one.memory_mb, demand={} if demand is None else {"cpu": demand})


def _as_measured(windows: Floats) -> Demand:
    return replace(from_trace(windows.tolist(), vcpus=VCPUS), origin="measured")


@dataclass(slots=True)
class EveningHosts(Arriving):
    """The hosts of an evening as rules know them: with days (H, STEPS), of new VMs those of their kind."""

    day: Floats = field(kw_only=True)
    expected: Sequence[Floats] = field(kw_only=True)  # the day of each new VM

    def column(self, name: str, number: int) -> Floats:
        """Days, too."""
        if name in ("day", "day_after"):
            return self.day + self.expected[number] if name == "day_after" else self.day.copy()
        return Arriving.column(self, name, number)

    def put(self, number: int, host: int) -> None:
        """Its day counts as it was expected."""
        Arriving.put(self, number, host)
        self.day[host] += self.expected[number]


def draw(world: int, new_vms: int) -> Evening:
    """World number `world` with new VMs number `new_vms`."""
    rng = np.random.default_rng([31, world])
    residents = tuple(_container(rng, f"{kind}-{number}", kind) for number, kind in enumerate(_kinds(rng, RESIDENTS)))
    places = rng.permutation(np.repeat(np.arange(HOSTS), math.ceil(RESIDENTS / HOSTS) + 1))[:RESIDENTS]
    fresh = np.random.default_rng([37, world, new_vms])
    coming = tuple(
        _container(fresh, f"{kind}-{RESIDENTS + number}", kind) for number, kind in enumerate(_kinds(fresh, NEW_VMS))
    )
    return Evening(residents, tuple(places.tolist()), coming)


def _kinds(rng: np.random.Generator, count: int) -> list[str]:
    """At least one of each kind, in random order."""
    some = [*KINDS, *rng.choice(KINDS, count - len(KINDS), p=_ODDS).tolist()]
    return [str(some[at]) for at in rng.permutation(count)]


def _container(rng: np.random.Generator, name: str, kind: str) -> DailyContainer:
    expected = sum(odds * _LEVELS[each] for each, odds in zip(KINDS, _ODDS, strict=True))
    each = LOAD * HOSTS * HOST_CPUS / (RESIDENTS + NEW_VMS)
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
