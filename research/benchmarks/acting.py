"""A week of mode act, beside a week in which the operator follows no advice, and beside balancing of averages.

    python -m research.benchmarks.acting [--seeds 1 2 3]

Simulated: containers of `research.arena.weeks`. In mode act the product itself acts: its service gets the windows that
agents would push, learns demand from them, plans, carries moves out by its ledger and guard rails on simulated hosts,
measures what each brought, and takes back what did harm. Its clock is that of the week.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from advisor.changes.controller import HOST, ExecutorKind, Executors, Meaning, Reach
from advisor.domain import Change, Command, Host, Instance, Inventory
from advisor.errors import InvalidInput
from advisor.service import Advisor
from advisor.settings import Settings
from models.arrays import Floats
from profiler.observed import MetricSample
from research import markdown
from research.arena.contest import NOW
from research.arena.evenings import HOST_CPUS, HOSTS, MEMORY_MB, MOST, VCPUS
from research.arena.rebalances import cell
from research.arena.weeks import A_DAY, WINDOW_S, Week, by_averages

_LOOK = 3  # windows between two passes of the controller
Figures = Mapping[str, float]


class _Clock:
    """The week's."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


class _Moves:
    """Migrations of simulated hosts, as an executor."""

    def __init__(self, week: Week) -> None:
        self._week = week
        self._number = {one.name: at for at, one in enumerate(week.containers)}

    def meaning(self, host: Host, command: Command) -> Meaning:  # noqa: ARG002
        raise InvalidInput(f"{command.tool} is not simulated", field="command")

    def moving(self, instance: Instance, source: Host, target: Host) -> Meaning:
        return Meaning("move", instance.id, {HOST: source.id}, {HOST: target.id})

    def read(self, change: Change) -> Mapping[str, str]:
        return {HOST: f"h{self._week.host_of[self._number[change.target]]}"}

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        self._week.move(self._number[change.target], int(values[HOST][1:]))

    def same(self, setting: str, one: str, other: str) -> bool:  # noqa: ARG002
        return one == other


def by_act(seed: int) -> tuple[Week, Mapping[str, int]]:
    """A week of mode act, and how many rollouts came to what."""
    week, clock = Week.draw(seed), _Clock()
    with tempfile.TemporaryDirectory(prefix="cotenant-act-") as name:
        settings = Settings(
            database=f"sqlite:///{name}/week.sqlite3", state_dir=Path(name), apply_mode="act", apply_kinds="move",
            apply_hosts="h*", apply_window_s=WINDOW_S, apply_measure_windows=6, apply_every_s=3600.0,
            fresh_s=86_400.0, max_batch=100_000,
        )  # fmt: skip
        with Advisor(settings, clock=clock) as advisor:
            kind = ExecutorKind(lambda _: _Moves(week), moves=("kvm",))
            advisor.changes._executors = Executors(Reach(), {"simulated": kind})
            advisor.inventory.put(_inventory(week), mode="replace", generation=None)
            samples: list[MetricSample] = []
            while not week.over:
                host_of = week.host_of.copy()
                run, delivered = week.step()
                clock.now += timedelta(seconds=WINDOW_S)
                samples += _samples(week, [int(one) for one in host_of], run, delivered, clock.now.timestamp())
                if week.at % _LOOK == 0:
                    advisor.telemetry.ingest(samples)
                    samples = []
                if week.at >= A_DAY and week.at % _LOOK == 0:
                    advisor.autopilot.step()
            return week, {**advisor.changes.numbers(), **advisor.changes.verdicts()}


def _inventory(week: Week) -> Inventory:
    hosts = tuple(
        Host(f"h{at}", "kvm", HOST_CPUS, MEMORY_MB, cpu_overcommit=MOST * VCPUS / HOST_CPUS) for at in range(HOSTS)
    )
    instances = tuple(
        replace(Instance(one.name, VCPUS, one.memory_mb), host=f"h{host}")
        for one, host in zip(week.containers, week.host_of, strict=True)
    )
    return Inventory(hosts, instances)


def _samples(week: Week, host_of: list[int], run: Floats, delivered: Floats, at: float) -> list[MetricSample]:
    """What the agents of the hosts push of a window: CPU time that ran and that waited."""
    waited = run * (1 / delivered - 1)
    return [
        MetricSample(f"h{host}", one.name, "instance", metric, 100.0 * float(values[number]), at)
        for number, (one, host) in enumerate(zip(week.containers, host_of, strict=True))
        for metric, values in (("cpu", run), ("waiting", waited))
    ]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    found: dict[str, list[Figures]] = {}
    for seed in parser.parse_args().seeds:
        for name, every, seen in (
            ("advice is not followed", 10**9, 1),
            ("averages of an hour, each hour", 12, 12),
            ("averages of half a day, each half day", A_DAY // 2, A_DAY // 2),
            ("averages of a day, each day", A_DAY, A_DAY),
        ):
            found.setdefault(name, []).append({**by_averages(seed, every, seen).judged(), "taken back": 0.0})
        began = time.process_time()
        week, numbers = by_act(seed)
        print(f"week {seed}: {dict(numbers)}, {time.process_time() - began:.0f} CPU s", flush=True)
        found.setdefault("mode act", []).append({**week.judged(), "taken back": float(numbers.get("taken_back", 0))})
        columns = list(found["mode act"][0])
        rows = [[name, *(cell([one[column] for one in each]) for column in columns)] for name, each in found.items()]
        print(markdown.table(["policy", *columns], rows), flush=True)


if __name__ == "__main__":
    main()
