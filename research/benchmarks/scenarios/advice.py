"""The question that describes a standing scene, its answer, and the answer's commands carried out and taken back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from advisor import offline, render
from advisor.domain import Candidate, Command, Effect, Host, Instance, Inventory, PlacementRequest, WorkloadProfile
from advisor.settings import Settings
from lab.measure import RunMeasurement
from profiler.metrics import join_key
from research.benchmarks.scenarios.scenes import ScenePart
from research.benchmarks.scenarios.testbed import UPLINK, Testbed

_TIMEOUT_S = 10.0


class NoAdviceError(Exception):
    """The advisor finds no placement for the new VM; the message says why."""


class CommandError(Exception):
    """A rendered command was refused, or cannot be run; the message repeats the complaint."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer: what to do, as it was rendered, and what is expected of every instance then, by name."""

    candidate: Candidate
    commands: tuple[Command, ...]
    effects: Mapping[str, Effect]

    @property
    def says(self) -> str:
        """The step of the ladder that mends it, else the settings that the new VM gets."""
        rungs = self.candidate.mitigation
        return rungs[-1].text if rungs else str(self.candidate.isolation)


def ask(
    stage: Testbed,
    alone: Sequence[Mapping[str, RunMeasurement]],
    disk_mb_s: float | None,
    model: Path | None,
    settings: Settings,
) -> Advice:
    """Ask where the new VM should go on an inventory of this one host; NoAdviceError when it cannot go there.

    `alone` are runs of each party alone, `disk_mb_s` what the disk was measured to do, None = it is not given. `model`
    is an artifact, None = what `settings` find, else the analytic model.
    """
    scene = stage.scene
    host = Host(
        "here",
        "lxc",
        scene.pcpus,
        memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 20),
        nic_mbit=scene.line_mbit,
        disk_mb_s=disk_mb_s,
        labels={"uplink": UPLINK, "kernel": os.uname().release},
    )
    resident, new_vm = (_instance(stage, party) for party in scene.parties)
    resident = replace(resident, host=host.id)
    workloads = tuple(_profile(party, [one[party.name] for one in alone]) for party in scene.parties)
    request = PlacementRequest(new_vm, limit=1, explain=False)
    answer = offline.where(Inventory((host,), (resident,), workloads), request, model=model, settings=settings)
    if not answer.candidates:
        tried = [rung.text for one in answer.rejected for rung in one.mitigation]
        raise NoAdviceError(" ".join([*(one.reason for one in answer.rejected), *tried]))
    best = answer.candidates[0]
    commands = render.plan(host, new_vm, best.isolation, (resident,), best.changes, cgroup=stage.version)
    if not stage.has_fq_codel():
        commands = tuple(replace(command, argv=_plain(command.argv), undo=_plain(command.undo)) for command in commands)
    return Advice(best, commands, {one.instance: one for one in (best.new_vm, *best.neighbours)})


@contextmanager
def followed(stage: Testbed, advice: Advice) -> Iterator[None]:
    """Carry out the commands as they were rendered, and take back those that were, in the opposite order."""
    done: list[Command] = []
    try:
        for command in advice.commands:
            if command.argv:
                _run(stage, command.argv)
                done.append(command)
        yield
    finally:
        for command in reversed(done):
            _run(stage, command.undo)


def _plain(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The leaf of a class is a plain FIFO on a kernel that was built without fq_codel; nothing else is changed."""
    return tuple("pfifo" if part == "fq_codel" else part for part in argv)


def _run(stage: Testbed, argv: Sequence[str]) -> None:
    """Run one command on the host, which for tc is the namespace where the uplink is."""
    inside = ("ip", "netns", "exec", stage.switch) if argv[0] == "tc" else ()
    done = subprocess.run(
        (*inside, *argv), capture_output=True, text=True, check=False, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise CommandError(f"{' '.join(argv)} ended with status {done.returncode}: {done.stderr.strip()}")


def _instance(stage: Testbed, party: ScenePart) -> Instance:
    return Instance(
        party.name,
        workload=party.name,
        service=party.service,
        min_throughput_ratio=party.min_throughput_ratio,
        max_latency_ratio=party.max_latency_ratio,
        labels=stage.labels(party),
    )


def _profile(party: ScenePart, alone: Sequence[RunMeasurement]) -> WorkloadProfile:
    """What the profiler measured of an instance alone, doing what it does here: at load 1.0 of what it is asked for.
    Means over the runs."""
    found: dict[str, list[float]] = {}
    for run in alone:
        metrics = {
            join_key(value.scope, value.metric): value.value for value in run.values if value.instance == party.name
        }
        for key, value in (metrics | run.reached[party.name].outcomes()).items():
            found.setdefault(key, []).append(value)
    return WorkloadProfile(party.name, {key: fmean(values) for key, values in found.items()}, origin="measured")
