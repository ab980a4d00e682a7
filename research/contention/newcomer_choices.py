"""What placements of newcomers lead to, without running anybody: each host as a queue of work, which backlog waits in.

    python -m research.contention.newcomer_choices [--worlds 0 1] [--sets 4]

The evenings are those of `newcomer_runs`. Residents are known as after one day of windows. Of newcomers only name and
size are, and once they are there the windows that an agent saw, but for the policies that say otherwise. A host is
short while work is left over; bursts are not looked at.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from advisor.domain import Host, Instance, Inventory, PlacementRequest
from advisor.placement.decision import recommend
from advisor.prediction.active import ActivePredictor
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.physics.prior import PriorPredictor
from models.profiling.demand_estimation import from_trace
from profiler.demand import Demand
from research.contention.newcomer_world import (
    HOST_CPUS,
    HOSTS,
    MEMORY_MB,
    MOST,
    VCPUS,
    DailyContainer,
    NewcomerWorld,
    draw,
    from_0_to_1,
    mean_and_ends,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WINDOWS = 288  # of the day before, of five minutes
WINDOWS_EACH = 0.48  # that pass until the next newcomer comes
STEPS = 32  # of the day after, as `newcomer_runs` measures
ROOM = 0.8  # of a host's CPUs, above which greedy placement by days counts what is wanted
ROOMS = (0.6, 0.7, ROOM, 0.9, 1.0)  # that it may be tuned to
EVEN = 0.01  # what greedy placement gives for balance where nothing is above ROOM
Choose = Callable[[NewcomerWorld], Sequence[int]]


def short_part(world: NewcomerWorld, placed: Sequence[int]) -> float:
    """The part of the next day in which an instance is on a host with work left over, mean of all instances."""
    wanted = np.array([one.demand(48.0, 24 / STEPS, STEPS) for one in (*world.residents, *world.newcomers)])
    host_of = np.array([*world.host_of, *placed])
    short = np.zeros(len(host_of))
    for host in range(HOSTS):
        there = host_of == host
        left, over = 0.0, []
        for value in wanted[there].sum(axis=0).tolist():
            left = max(0.0, left + value - HOST_CPUS)
            over.append(left > 0)
        short[there] = np.mean(over)
    return float(short.mean())


@dataclass(frozen=True, slots=True)
class Product:
    """Asks for each newcomer in turn, and puts it where the answer says."""

    newcomer_known: bool = False
    hours: bool = True
    predictor: ActivePredictor = field(default_factory=lambda: ActivePredictor(PriorPredictor()))

    def __call__(self, world: NewcomerWorld) -> Sequence[int]:
        hosts = tuple(Host(f"h{at}", "lxc", HOST_CPUS, MEMORY_MB) for at in range(HOSTS))
        residents = tuple(
            replace(self._instance(one, known=True), host=f"h{at}")
            for one, at in zip(world.residents, world.host_of, strict=True)
        )
        seen = {host.id: NOW for host in hosts}
        snapshot = ClusterSnapshot.build(Inventory(hosts, residents, ()), seen=seen, pending=(), taken_at=NOW)
        placed: list[int] = []
        for one in world.newcomers:
            if not self.newcomer_known:
                snapshot = snapshot.changed(seen={}, pending=(), taken_at=NOW, instances=self._came(world, placed))
            newcomer = self._instance(one, known=self.newcomer_known)
            request = PlacementRequest(newcomer, limit=1, explain=False, commands=False, mitigate=False)
            best = recommend(snapshot, QuestionContext(self.predictor, NOW, 1e9), request).candidates[0].host
            placed.append(int(best[1:]))
            there = {newcomer.id: replace(newcomer, host=best)}
            snapshot = snapshot.changed(seen={}, pending=(), taken_at=NOW, instances=there)
        return placed

    def _came(self, world: NewcomerWorld, placed: Sequence[int]) -> dict[str, Instance]:
        """Those who came, one each WINDOWS_EACH windows, with what was measured of them since."""
        found = {}
        for at, (one, host) in enumerate(zip(world.newcomers, placed, strict=False)):
            if (windows := int(WINDOWS_EACH * (len(placed) - at))) > 0:
                seen = one.demand(24.0, 24 / WINDOWS, windows)
                demand = replace(from_trace(seen.tolist(), vcpus=VCPUS), origin="measured")
                found[one.name] = replace(self._instance(one, known=False), host=f"h{host}", demand={"cpu": demand})
        return found

    def _instance(self, one: DailyContainer, *, known: bool) -> Instance:
        return Instance(one.name, VCPUS, one.memory_mb, demand={"cpu": self._demand(one)} if known else {})

    def _demand(self, one: DailyContainer) -> Demand:
        windows = one.demand(0.0, 24 / WINDOWS, WINDOWS)
        found = replace(from_trace(windows.tolist(), vcpus=VCPUS), origin="measured")
        return found if self.hours else replace(found, hours=())


def by_days(waves: int | None, *, room: float = ROOM, known: bool = False) -> Choose:
    """Greedy placement by the days of residents and of the newcomer's class, with so many waves of each; None = all.

    It leaves a host at `room`, a part of its CPUs, where it can. `known` = what every instance asks for the next day.
    """

    def choose(world: NewcomerWorld) -> Sequence[int]:
        begin = 48.0 if known else 0.0
        days = {one.name: _smooth(one.demand(begin, 24 / STEPS, STEPS), waves) for one in world.residents}
        classes: dict[str, list[Floats]] = {}
        for one in world.residents:
            classes.setdefault(one.kind, []).append(days[one.name])
        total, count = np.zeros((HOSTS, STEPS)), np.zeros(HOSTS)
        for one, host in zip(world.residents, world.host_of, strict=True):
            total[host] += days[one.name]
            count[host] += 1
        placed = []
        for one in world.newcomers:
            coming = one.demand(begin, 24 / STEPS, STEPS) if known else np.mean(classes[one.kind], axis=0)
            after, most = total + coming, room * HOST_CPUS
            more = np.maximum(after - most, 0.0).mean(axis=1) - np.maximum(total - most, 0.0).mean(axis=1)
            cost = np.where(count < MOST, more + EVEN * after.mean(axis=1), np.inf)
            host = int(cost.argmin())
            total[host] += coming
            count[host] += 1
            placed.append(host)
        return placed

    return choose


def nova(world: NewcomerWorld) -> Sequence[int]:
    """Nova's CPU and RAM weighers, each from 0 to 1 among the hosts; ties are broken by chance."""
    rng = np.random.default_rng(1)
    count = np.bincount(world.host_of, minlength=HOSTS).astype(np.float64)
    used = np.zeros(HOSTS)
    np.add.at(used, list(world.host_of), [one.memory_mb for one in world.residents])
    placed = []
    for one in world.newcomers:
        weight = np.where(count < MOST, from_0_to_1(-count) + from_0_to_1(-used), -np.inf)
        host = int(rng.choice(np.flatnonzero(weight >= weight.max() - 1e-9)))
        count[host] += 1
        used[host] += one.memory_mb
        placed.append(host)
    return placed


def _smooth(day: Floats, waves: int | None) -> Floats:
    if waves is None:
        return day
    found = np.fft.rfft(day)
    found[waves + 1 :] = 0
    return np.asarray(np.fft.irfft(found, day.size))


def chance(world: NewcomerWorld) -> Sequence[int]:
    """Any host that has room."""
    return _by_count(world, np.random.default_rng(2).choice)


def _by_count(world: NewcomerWorld, choose: Callable[[np.ndarray], int]) -> Sequence[int]:
    """Each newcomer on one of the hosts that have room, whatever it wants."""
    count = np.bincount(world.host_of, minlength=HOSTS)
    placed = []
    for _ in world.newcomers:
        host = int(choose(np.flatnonzero(count < MOST)))
        count[host] += 1
        placed.append(host)
    return placed


def first_fit(world: NewcomerWorld) -> Sequence[int]:
    """The first host that has room."""
    return _by_count(world, lambda free: free[0])


def tunable_rules() -> Mapping[str, Choose]:
    """Rules of thumb, and greedy placement by means and by days with every value of what it leaves free."""
    return {
        "random": chance,
        "first fit": first_fit,
        "Nova's weighers": nova,
        **{f"greedy by means, {room:.0%}": by_days(0, room=room) for room in ROOMS},
        **{f"greedy by days, 2 waves, {room:.0%}": by_days(2, room=room) for room in ROOMS},
        **{f"greedy by every hour, {room:.0%}": by_days(None, room=room) for room in ROOMS},
    }


def policies() -> Mapping[str, Choose]:
    """By what they are called in the table."""
    return {
        "Cotenant": Product(),
        "Cotenant without hours": Product(hours=False),
        "Cotenant, newcomer known": Product(newcomer_known=True),
        "random": chance,
        "Nova's weighers": nova,
        "greedy by means of classes": by_days(0),
        "greedy by days, 2 waves": by_days(2),
        "greedy by days, 4 waves": by_days(4),
        "greedy by days, every hour": by_days(None),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, nargs="+", default=[0, 1], help="numbers of sets of residents")
    parser.add_argument("--sets", type=int, default=4, help="evenings for each")
    options = parser.parse_args(arguments)
    evenings = [draw(world, number) for world in options.worlds for number in range(options.sets)]
    ours: list[float] = []
    sys.stdout.write("| policy | short, % of the time | ours less | each evening |\n|---|---|---|---|\n")
    for name, choose in policies().items():
        found = [100 * short_part(world, choose(world)) for world in evenings]
        ours = ours or found
        mean, low, high = mean_and_ends([value - mine for value, mine in zip(found, ours, strict=True)])
        each = ", ".join(f"{value:.1f}" for value in found)
        less = f"{mean:.1f} [{low:.1f}, {high:.1f}]"
        sys.stdout.write(f"| {name} | {np.mean(found):.1f} | {less} | {each} |\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
