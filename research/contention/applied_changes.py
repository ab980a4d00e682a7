"""Changes of real containers, carried out and taken back by the product: predicted effect beside measured effect.

    python -m research.contention.applied_changes OUTPUT [--changes 100] [--windows 12] [--minutes 60] [--seed 1]
    python -m research.contention.applied_changes OUTPUT --judge
    python -m research.contention.applied_changes OUTPUT --fit

Each scene is two to five containers of known demand on this machine's first two CPUs, with one busy antagonist.
A change of weight, cap or pins of one of them is planned, predicted by the analytic model, carried out through the
ledger on the real control groups, measured in windows of one second after as many before, and taken back; then every
file of the groups is compared with what it was. Each line of OUTPUT is one change. `--fit` says how many effects would
be in range for each part of the doubt that both states share (advisor.domain.changes.SHARED). It needs root,
version 1 control groups and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from advisor import offline
from advisor.changes.guard import Span, measure
from advisor.domain import (
    Host,
    Instance,
    Inventory,
    IsolationSettings,
    MeasuredEffect,
    Plan,
    PlanStep,
    PredictedEffect,
    Scene,
)
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from profiler.observed import Pinning
from profiler.parse.cgroup import parse_flat
from research.contention.container_groups import HostGroups
from research.contention.container_mixes import MixHost, PlannedContainer, new_seed
from research.contention.container_runs import RunningContainer, compile_program, first_in_line
from research.contention.host_spec import InstanceSpec
from research.contention.predicted import as_instance

CPUS = (0, 1)
CHANGES_A_SCENE = 5
WARM_UP_S = 3.0
SETTLE_S = 1.0
FILES = ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpuset.cpus")


@dataclass(slots=True)
class _Run:
    """Windows of one scene: CPU delivered by container and end of the window, on this program's clock."""

    containers: Sequence[RunningContainer]
    series: dict[str, dict[float, float]]
    capped: frozenset[str] = frozenset()  # whose cap is changed

    def windows(self, number: int) -> None:
        """Measure so many windows of one second."""
        for _ in range(number):
            at = time.monotonic()
            begun = [_counted(each, capped=each.container.spec.id in self.capped) for each in self.containers]
            time.sleep(max(0.0, at + 1.0 - time.monotonic()))
            end = time.time()
            for each, before in zip(self.containers, begun, strict=True):
                run, wait = (
                    now - then
                    for now, then in zip(
                        _counted(each, capped=each.container.spec.id in self.capped), before, strict=True
                    )
                )
                if run + wait > 0.01e9:
                    self.series.setdefault(each.container.spec.id, {})[end] = run / (run + wait)


def _counted(one: RunningContainer, *, capped: bool) -> tuple[int, int]:
    """Run time and waiting for others in ns, and for its own cap where that is changed (`capped`)."""
    run, wait, _ = one.counts()
    return run, wait if capped else wait - _throttled(one.path)


def _throttled(path: str) -> int:
    """For how long its own cap held a group back, ns, whether or not it has one now."""
    text = Path(find_mounts(LiveSource())["cpu"], path, "cpu.stat").read_text("ascii")
    return parse_flat(text, path)["throttled_time"]


def containers(name: str, random: np.random.Generator, seconds: int) -> tuple[PlannedContainer, ...]:
    """Two to five containers, the last of which is always busy."""
    size = int(random.integers(2, 6))
    found = []
    for at in range(size):
        hog = at == size - 1
        loop = "hog" if hog else str(random.choice(["open", "closed"]))
        demand = 1.0 if hog else float(random.uniform(0.15, 0.7))
        pin = (0,) if random.random() < 0.7 else ()
        spec = InstanceSpec(
            f"{name}.c{at}", 1, demand, loop, float(random.choice([1.0, 5.0, 20.0])), weight=256.0, pin=pin,  # type: ignore[arg-type]
        )  # fmt: skip
        found.append(PlannedContainer(spec, loop, "exponential", (demand,) * seconds, new_seed(random)))  # type: ignore[arg-type]
    return tuple(found)


def changed_settings(instances: Sequence[Instance], random: np.random.Generator) -> tuple[str, IsolationSettings]:
    """A change as an operator or a tuning would make it: a victim's weight or pin, an antagonist's weight or cap."""
    victim, hog = instances[int(random.integers(len(instances) - 1))], instances[-1]
    match str(random.choice(["weigh", "lighten", "cap", "pin"])):
        case "weigh":
            return victim.id, replace(victim.settings, weight=int(random.choice([512, 1024, 2048])))
        case "lighten":
            return hog.id, replace(hog.settings, weight=int(random.choice([32, 64, 128])))
        case "cap":
            return hog.id, replace(hog.settings, cap_percent=float(random.choice([25.0, 50.0, 75.0])))
    other = (1,) if victim.settings.pinning is None or set(victim.settings.pinning.named) == {0} else (0,)
    return victim.id, replace(victim.settings, pinning=Pinning((other,)))


def planned(host: Host, instances: Sequence[Instance], changed: str, settings: IsolationSettings, number: int) -> Plan:
    """A plan of one step with what the analytic model says of every container before and after."""
    then = tuple(replace(one, settings=settings) if one.id == changed else one for one in instances)
    before, after = (
        offline.predict(
            Scene(host, tuple(there)), model=None, settings=Settings(state_dir=Path("/nonexistent"))
        ).effects
        for there in (instances, then)
    )
    step = PlanStep(changed, host.id, action="settings", source=host.id, settings=settings)
    now = datetime.now(UTC)
    return Plan(f"plan-{number}", now, "analytic", "analytic", (step,), {host.id: before}, {host.id: after})


def run_scene(
    groups: HostGroups, program: Path, folder: Path, name: str, random: np.random.Generator, windows: int
) -> Iterator[Mapping[str, Any]]:
    """The changes of one scene, one after the other, each taken back before the next."""
    seconds = int(WARM_UP_S + CHANGES_A_SCENE * (2 * windows + 8) + 30)
    there = containers(name, random, seconds)
    mix = MixHost(f"h{int(name[1:]) % 1000}", CPUS, there)
    made = groups.make(mix)
    running = [RunningContainer(one, place, groups.mounts) for one, place in zip(there, made, strict=True)]
    host = Host("here", "lxc", pcpus=len(CPUS), memory_mb=1.0, labels={"cgroup_version": "1", "kernel": "6.18.0"})
    instances = [
        replace(as_instance(one.spec), host="here", labels={"cgroup": place.path})
        for one, place in zip(there, made, strict=True)
    ]
    settings = Settings(
        database=f"sqlite:///{folder}/{name}.sqlite3", state_dir=folder, apply_mode="ask", apply_here="here",
        apply_canary=False, apply_cooldown_s=0, apply_per_hour=1000, apply_per_day=1000, apply_at_once=100,
        fresh_s=86400.0,
    )  # fmt: skip
    try:
        with Advisor(settings) as advisor, first_in_line():  # before the load, which outweighs whatever else runs here
            advisor.inventory.put(Inventory((host,), tuple(instances)), mode="replace", generation=None)
            start = time.monotonic() + 0.5
            for each in running:
                each.start(program, start, start + seconds)
            time.sleep(WARM_UP_S)
            for each in running:
                each.open_tasks()
            run = _Run(running, {})
            for number in range(CHANGES_A_SCENE):
                changed, then = changed_settings(instances, random)
                plan = planned(host, instances, changed, then, number)
                yield _carried_out(advisor, plan, run, [place.path for place in made], groups.mounts, windows)
    finally:
        for each in running:
            each.stop()
        groups.remove()


def _carried_out(
    advisor: Advisor, plan: Plan, run: _Run, paths: Sequence[str], mounts: Mapping[str, str], windows: int
) -> Mapping[str, Any]:
    run.series.clear()
    before = _files(paths, mounts)
    rollout = advisor.changes.of_plan(plan)
    run.capped = frozenset(change.instance for change in rollout.changes if change.kind == "cap")
    advisor.changes.store(rollout)
    advisor.changes.approve(rollout.id)
    begin = time.time()
    run.windows(windows)
    changed = time.time()
    standing = advisor.changes.carry_out(rollout.id)
    settled = time.time() + SETTLE_S
    time.sleep(SETTLE_S)
    run.windows(windows)
    span = Span(begin, changed, settled, time.time(), 0.9)
    effects = [measure(one, run.series.get(one.instance, {}), {}, span) for one in rollout.predicted]
    undone = advisor.changes.undo(rollout.id, "measured")
    time.sleep(SETTLE_S)
    return {
        "label": "measured",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kinds": [change.kind for change in rollout.changes],
        "changed": sorted(rollout.instances),
        "state": standing.state,
        "undone": undone.state,
        "as_before": _files(paths, mounts) == before,
        "lines": len(undone.lines),
        "effects": [_record(one, predicted) for one, predicted in zip(effects, rollout.predicted, strict=True)],
    }


def _record(one: MeasuredEffect, predicted: PredictedEffect) -> Mapping[str, Any]:
    def band(value: Any) -> Any:
        return None if value is None else [round(value.expected, 4), round(value.lower, 4), round(value.upper, 4)]

    return {
        "state_before": band(predicted.before), "state_after": band(predicted.after),
        "instance": one.instance, "verdict": one.verdict,
        "predicted": band(one.predicted), "measured": band(one.effect),
        "before": one.before, "after": one.after, "windows": [one.windows_before, one.windows_after],
    }  # fmt: skip


def _files(paths: Sequence[str], mounts: Mapping[str, str]) -> dict[str, bytes]:
    """Every file that a change may write, byte by byte."""
    every = [Path(mounts[name.partition(".")[0]], path, name) for path in paths for name in FILES]
    return {str(file): file.read_bytes() for file in every if file.is_file()}


def judge(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table in Markdown: how many measured effects are in the predicted range, by kind of change."""
    lines = [
        "| change | changes | effects | in range | interval meets range | sign right | as before |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    kinds = sorted({row["kinds"][0] for row in rows})
    for kind in [*kinds, "all"]:
        chosen = [row for row in rows if kind in ("all", row["kinds"][0])]
        effects = [one for row in chosen for one in row["effects"] if one["measured"] is not None]
        felt = [one for one in effects if abs(one["predicted"][0]) >= 0.03]
        inside = sum(one["predicted"][1] <= one["measured"][0] <= one["predicted"][2] for one in effects)
        meets = sum(one["verdict"] in ("as predicted", "unknown") for one in effects)
        signs = sum(one["predicted"][0] * one["measured"][0] > 0 for one in felt)
        as_before = sum(row["as_before"] for row in chosen)
        share = [f"{100 * part / max(len(effects), 1):.0f} %" for part in (inside, meets)]
        cells = (kind, len(chosen), len(effects), *share, f"{signs} of {len(felt)}", as_before)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def fit(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table: for each shared part of the doubt, the effects in range and the median width."""
    effects = [one for row in rows for one in row["effects"] if one["measured"] is not None and "state_after" in one]
    lines = ["| shared | effects | in range | median width |", "|--:|--:|--:|--:|"]
    for shared in np.arange(0.0, 1.001, 0.05):
        ranges = [_range(one["state_before"], one["state_after"], float(shared)) for one in effects]
        inside = [low <= one["measured"][0] <= high for one, (low, high) in zip(effects, ranges, strict=True)]
        width = float(np.median([high - low for low, high in ranges]))
        lines.append(f"| {shared:.2f} | {len(effects)} | {100 * float(np.mean(inside)):.0f} % | {width:.2f} |")
    return "\n".join(lines)


def _range(before: Sequence[float], after: Sequence[float], shared: float) -> tuple[float, float]:
    """The range of the difference as `PredictedEffect.change` has it, for another shared part."""
    expected = after[0] - before[0]
    alike = (after[1] - before[1], after[2] - before[2], expected)
    down, up = (
        math.hypot(after[0] - after[1], before[2] - before[0]),
        math.hypot(after[2] - after[0], before[0] - before[1]),
    )
    return (
        expected - (1 - shared) * down - shared * (expected - min(alike)),
        expected + (1 - shared) * up + shared * (max(alike) - expected),
    )


def main(words: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--fit", action="store_true")
    asked = parser.parse_args(words)
    if asked.judge or asked.fit:
        rows = [json.loads(line) for line in asked.output.read_text("utf-8").splitlines()]
        print((fit if asked.fit else judge)(rows))  # noqa: T201
        return 0
    until = datetime.now(UTC) + timedelta(minutes=asked.minutes)
    random = np.random.default_rng(asked.seed)
    number = 0
    with (
        tempfile.TemporaryDirectory(prefix="cotenant-applied-") as name,
        asked.output.open("a", encoding="utf-8") as out,
    ):
        program = compile_program(Path(name))
        with HostGroups() as groups:
            for scene in range(10_000):
                for row in run_scene(groups, program, Path(name), f"s{scene:03d}", random, asked.windows):
                    out.write(json.dumps(row) + "\n")
                    out.flush()
                    number += 1
                    if number >= asked.changes or datetime.now(UTC) >= until:
                        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
