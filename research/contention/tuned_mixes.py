"""Measure what a tuning is worth: real containers as they are, tuned, unpinned, and with antagonists apart.

    python -m research.contention.tuned_mixes RUNS [--mixes 60] [--rounds 2] [--best 6] [--minutes 90] [--seed 1]
    python -m research.contention.tuned_mixes RUNS --judge

Each mix is two to eight containers on this machine's first two CPUs: pinned badly, unpinned, with wrong weights, some
beside a busy process that shares a CPU which it should not. All ways of one mix run one after the other, in turn
and in another order each round. Of the first `--best` mixes with two or three containers every layout of pins runs,
too. Runs, files and requirements are those of `container_runs`. `--judge` prints the table in Markdown: T/B measured
and predicted, both run / (run + wait).
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from advisor.domain import Host, Inventory
from advisor.snapshot import ClusterSnapshot
from advisor.tuning.host import tune_host
from models.arrays import Floats
from models.physics.prior import PriorPredictor
from profiler.observed import DEFAULT_WEIGHT, Instance
from research.contention.container_mixes import (
    MEASURED_S,
    SPARE_S,
    WARM_UP_S,
    Mix,
    MixHost,
    PlannedContainer,
    host_spec,
    new_seed,
)
from research.contention.container_runs import measure_all
from research.contention.host_spec import HostSpec, InstanceSpec
from research.contention.predicted import as_instance

CPUS = (0, 1)
WAYS = ("as_it_is", "tuned", "unpinned", "apart")
RESAMPLES = 2000


def mixes(count: int, rounds: int, best: int, seed: int) -> list[Mix]:
    """All runs: of each mix its ways in turn, in another order each round, then every layout of the first `best`."""
    random = np.random.default_rng(seed)
    planned, layouts = list[Mix](), list[Mix]()
    for number in range(count):
        own = new_seed(random)
        containers = _containers(f"m{number:03d}", np.random.default_rng(own))
        ways = {way: _as(way, containers) for way in WAYS}
        for turn in range(rounds):
            for way in random.permutation(WAYS):
                planned.append(_mix(f"m{number:03d}.{way}.{turn}", own, ways[str(way)], str(way), turn))
        if len(containers) <= 3 and best > 0:
            best -= 1
            for at, pins in enumerate(itertools.product(((), (0,), (1,)), repeat=len(containers))):
                pinned = tuple(_with(one, pin=pin) for one, pin in zip(containers, pins, strict=True))
                layouts.append(_mix(f"m{number:03d}.layout.{at}", own, pinned, "layout", at))
    return [*planned, *layouts]


def _mix(name: str, seed: int, containers: tuple[PlannedContainer, ...], way: str, turn: int) -> Mix:
    host = MixHost("h0", CPUS, containers)
    return Mix(name, "two_cpus", seed, (host,), instances=name.partition(".")[0], placement=way, repeat=turn)


def _containers(name: str, random: np.random.Generator) -> tuple[PlannedContainer, ...]:
    """Containers of one mix, as they are: a third of the mixes all pinned, a third in part, a third with weights."""
    size = int(random.integers(2, 9))
    kind = str(random.choice(["pinned", "partly", "weights"]))
    total = float(random.uniform(0.5, 1.2)) * len(CPUS)
    means = random.lognormal(0.0, 0.6, size)
    means = np.minimum(means / means.sum() * total, 0.9)
    hog = int(random.integers(size)) if random.random() < 0.5 else -1
    seconds = WARM_UP_S + MEASURED_S + SPARE_S
    found = []
    for at in range(size):
        demand = 1.0 if at == hog else float(means[at])
        loop = "hog" if at == hog else str(random.choice(["open", "closed"]))
        pinned = kind == "pinned" or (kind == "partly" and random.random() < 0.6)
        weight = float(random.choice([64.0, 128.0, 1024.0])) if kind == "weights" and random.random() < 0.5 else 256.0
        spec = InstanceSpec(
            f"{name}.c{at}", 1, demand, loop, float(random.choice([1.0, 5.0, 20.0])),  # type: ignore[arg-type]
            weight=weight, pin=(int(random.random() < 0.3),) if pinned else (),
        )  # fmt: skip
        found.append(
            PlannedContainer(spec, loop, "exponential", (demand,) * seconds, new_seed(random))  # type: ignore[arg-type]
        )
    return tuple(found)


def _as(way: str, containers: tuple[PlannedContainer, ...]) -> tuple[PlannedContainer, ...]:
    if way == "as_it_is":
        return containers
    if way == "unpinned":
        return tuple(_with(one, pin=(), weight=float(DEFAULT_WEIGHT)) for one in containers)
    if way == "apart":  # the largest demand has a CPU, all others the other one
        largest = max(range(len(containers)), key=lambda at: containers[at].spec.demand_cpus)
        return tuple(_with(one, pin=(1,) if at == largest else (0,)) for at, one in enumerate(containers))
    return _tuned(containers)


def _with(container: PlannedContainer, **changed: object) -> PlannedContainer:
    return replace(container, spec=replace(container.spec, **changed))  # type: ignore[arg-type]


def _tuned(containers: tuple[PlannedContainer, ...]) -> tuple[PlannedContainer, ...]:
    """The containers under the settings that the product advises for a host that is asked for nothing else."""
    settled = {one.spec.id: one for one in containers}
    spec = HostSpec("h0", len(CPUS), tuple(one.spec for one in containers))
    for change in tune_host(_snapshot(spec), 0, PriorPredictor()).changes:
        if change.then is not None:
            settings, name = change.then.settings, change.then.id
            cap = float("inf") if settings.cap_percent is None else settings.cap_percent / 100
            pin = () if settings.pinning is None else tuple(sorted(settings.pinning.named))
            weight = float(settings.weight or DEFAULT_WEIGHT)
            settled[name] = _with(settled[name], pin=pin, weight=weight, cap_cpus=cap)
    return tuple(settled[one.spec.id] for one in containers)


def _snapshot(spec: HostSpec) -> ClusterSnapshot:
    host = Host("h0", "lxc", pcpus=spec.cpus, memory_mb=1.0)
    there: tuple[Instance, ...] = tuple(replace(as_instance(one), host="h0") for one in spec.instances)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return ClusterSnapshot.build(Inventory((host,), there), seen={"h0": now}, pending=(), taken_at=now)


@dataclass(frozen=True, slots=True)
class _Ran:
    """One way of one mix: T/B measured, mean over rounds, and predicted with its range; (N,) each."""

    measured: Floats
    expected: Floats
    lower: Floats
    upper: Floats


def _read(path: Path) -> Mapping[str, Mapping[str, _Ran]]:
    """The ways of each mix, by mix and way; `best` is the layout with the highest lowest T/B."""
    lines = [json.loads(line) for line in path.read_text("ascii").splitlines()]
    by_way: dict[tuple[str, str], list[Mapping[str, object]]] = defaultdict(list)
    for line in lines:
        if not line["disturbed"]:
            way = line["placement"] if line["placement"] != "layout" else f"layout.{line['repeat']}"
            by_way[line["instances"], way].append(line)
    found: dict[str, dict[str, _Ran]] = defaultdict(dict)
    for (mix, way), runs in by_way.items():
        ran = _ran(runs)
        if not way.startswith("layout"):
            found[mix][way] = ran
        elif "best" not in found[mix] or ran.measured.min() > found[mix]["best"].measured.min():
            found[mix]["best"] = ran
    return found


def _ran(runs: Sequence[Mapping[str, object]]) -> _Ran:
    hosts = [run["hosts"][0] for run in runs]  # type: ignore[index]
    spec = host_spec(hosts[0])
    shares = [[one["outcome"]["share"] for one in host["containers"]] for host in hosts]
    measured = np.nan_to_num(np.array(shares, dtype=float), nan=1.0).mean(axis=0)
    snapshot = _snapshot(spec)
    band = PriorPredictor().predict(snapshot.scenes, ()).throughput
    slots = {one.id: slot for slot, one in enumerate(snapshot.residents[0])}
    order = [slots[one.id] for one in spec.instances]
    return _Ran(measured, *(part[0, order] for part in (band.expected, band.lower, band.upper)))


def judged(found: Mapping[str, Mapping[str, _Ran]]) -> Iterator[str]:
    """The table: the lowest T/B of each way, its gain over as it is, and how far ranges held."""
    random = np.random.default_rng(1)
    whole = [ways for _, ways in sorted(found.items()) if {"as_it_is", "tuned"} <= ways.keys()]
    yield "| way | mixes | lowest T/B | predicted | gain (90 % interval) | predicted | in range |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for way in (*WAYS, "best"):
        rows = [(ways[way], ways["as_it_is"]) for ways in whole if way in ways]
        if not rows:
            continue
        measured = np.array([(one.measured.min(), base.measured.min()) for one, base in rows])
        predicted = np.array([(one.expected.min(), base.expected.min()) for one, base in rows])
        gains = measured[:, 0] - measured[:, 1]
        drawn = gains[random.integers(len(gains), size=(RESAMPLES, len(gains)))].mean(axis=1)
        inside = np.concatenate([(one.measured >= one.lower) & (one.measured <= one.upper) for one, _ in rows])
        low, high = np.quantile(drawn, [0.05, 0.95])
        yield (
            f"| {way} | {len(rows)} | {measured[:, 0].mean():.3f} | {predicted[:, 0].mean():.3f} | {gains.mean():+.3f} "
            f"({low:+.3f} to {high:+.3f}) | {(predicted[:, 0] - predicted[:, 1]).mean():+.3f} | {inside.mean():.0%} |"
        )
    worse = sum(int((ways["tuned"].measured < ways["tuned"].lower).sum()) for ways in whole)
    count = sum(len(ways["tuned"].measured) for ways in whole)
    yield ""
    yield f"{worse} of {count} tuned instances are below their range."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing of the runs, or judge them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="file of runs, one JSON object a line; continued when it is there")
    parser.add_argument("--judge", action="store_true", help="print the table of the runs that are there")
    parser.add_argument("--mixes", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--best", type=int, default=6, help="mixes of two or three containers whose every layout runs")
    parser.add_argument("--minutes", type=float, default=90.0, help="begin no run after so long")
    parser.add_argument("--limit", type=int, default=None, help="make at most so many runs now")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    if given.judge:
        sys.stdout.writelines(f"{line}\n" for line in judged(_read(given.runs)))
        return 0
    planned = mixes(given.mixes, given.rounds, given.best, given.seed)
    measure_all(planned, given.runs, until_s=time.monotonic() + 60 * given.minutes, limit=given.limit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
