"""Means alone, held against simulated hosts whose demand follows public traces.

`python -m research.contention.trace_mixes TRACE... --out FILE [--hosts N]`

A trace is one of those that `research.demand_classes` reads. Hosts have 16, 64 or 128 CPUs and are asked for 60 to 98 %
of them. The VMs of a host are those of one day of the trace after another, in the trace's own time of day: with their
own means (`own`), or each scaled to the host's one mean (`scaled`). They are simulated window by window
(`research.contention.simulator`) as closed loops, as open loops, or as both in equal numbers. A window of five minutes
is WINDOW_S long here and a burst BURST_MS, so that a window still has a hundred bursts.

The prediction is given the mean of each VM over the simulated day and its vCPUs, and nothing else. What is compared is
what the product predicts: a VM's share = run / (run + wait) over the whole day, and the parts of the time in which a VM
waits (`short`) or more vCPUs want a CPU than there are (`short` of a host). Everything follows from seeds; a run that
was interrupted goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from models.arrays import Bools, Floats
from models.data.demand_classes import from_mean
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.physics.prior import PriorPredictor, solve
from profiler.demand import Demand
from profiler.observed import Host, Instance
from research import markdown
from research.contention import records
from research.contention.host_spec import HostOutcome, HostSpec, InstanceOutcome, InstanceSpec, Loop
from research.contention.judge import Figure
from research.contention.simulator import Length, simulate
from research.demand_classes import WINDOW_S as TRACE_WINDOW_S
from research.demand_classes import read

SEED = 20_261_128
ORIGIN = "simulated"
CPUS = (16, 64, 128)
LOADS = (0.60, 0.75, 0.85, 0.90, 0.94, 0.98)
KINDS = ("own", "scaled")
LOOPS = ("closed", "open", "both")
MEANS = (0.2, 0.6)  # of a vCPU: of a host whose VMs are scaled
VCPUS, VCPUS_PARTS = (1, 2, 4), (0.5, 0.3, 0.2)
WINDOWS = 288  # of a day
WINDOW_S, BURST_MS = 1.0, 10.0
LEAST_WINDOWS = 200  # of a VM's day
LEAST_MEAN, MOST_MEAN = 0.02, 0.97  # of a vCPU: VMs that sleep or never do say nothing
MOST_VMS = 1000
RESAMPLES = 1000

Days = Sequence[Sequence[Floats]]  # of each day, the use of a vCPU by each VM in each of WINDOWS


@dataclass(frozen=True, slots=True)
class TraceHost:
    """A host, and what each of its VMs asks for in each window; (W, n) CPUs."""

    spec: HostSpec
    demand: Floats
    seed: int


def days_of(path: Path) -> Days:
    """The days of a trace that most of its windows are known of; a window that is missing is as the one before."""
    found: dict[int, list[Floats]] = {}
    for times, used in read(path).values():
        window = (times // TRACE_WINDOW_S).astype(np.int64)
        for day in np.unique(window // WINDOWS):
            here = window // WINDOWS == day
            if len(set(window[here].tolist())) < LEAST_WINDOWS:
                continue
            at = np.searchsorted(window[here], day * WINDOWS + np.arange(WINDOWS), side="right") - 1
            series = used[here][np.maximum(at, 0)]
            if LEAST_MEAN <= series.mean() <= MOST_MEAN:
                found.setdefault(int(day), []).append(series)
    return [found[day] for day in sorted(found)]


def hosts_of(name: str, days: Days, repeats: int) -> Iterator[TraceHost]:
    """`repeats` hosts of every size, load, kind and loop."""
    for number, (_, cpus, load, kind, loops) in enumerate(product(range(repeats), CPUS, LOADS, KINDS, LOOPS)):
        seed = SEED + number // len(LOOPS)  # loops are compared on the same demand
        rng = np.random.default_rng(seed)
        yield _host(f"{name}-{kind}-{loops}-{cpus}-{load:.2f}-{number}", rng, days, cpus, load, kind, loops, seed)


def _host(
    name: str, rng: np.random.Generator, days: Days, cpus: int, load: float, kind: str, loops: str, seed: int
) -> TraceHost:
    mean = float(rng.uniform(*MEANS)) if kind == "scaled" else None
    columns: list[Floats] = []
    sizes: list[int] = []
    while sum(float(one.mean()) for one in columns) < load * cpus and len(columns) < MOST_VMS:
        day = days[int(rng.integers(len(days)))]
        for at in rng.permutation(len(day)):
            shape = day[int(at)] if mean is None else scaled(day[int(at)], mean)
            vcpus = int(rng.choice(VCPUS, p=VCPUS_PARTS))
            if shape is None or sum(float(one.mean()) for one in columns) >= load * cpus:
                continue
            columns.append(vcpus * shape)
            sizes.append(vcpus)
    demand = np.column_stack(columns)
    demand *= load * cpus / demand.mean(axis=0).sum()  # the last VM was a little too much
    kinds: dict[str, tuple[Loop, ...]] = {"closed": ("closed",), "open": ("open",), "both": ("closed", "open")}
    specs = tuple(
        InstanceSpec(f"vm-{at}", size, float(column.mean()), kinds[loops][at % len(kinds[loops])], BURST_MS)
        for at, (size, column) in enumerate(zip(sizes, demand.T, strict=True))
    )
    return TraceHost(HostSpec(name, cpus, specs, WINDOW_S), demand, seed)


def scaled(shape: Floats, mean: float) -> Floats | None:
    """The shape, stretched so that its mean is `mean` where nothing is above 1; None where it is too seldom busy."""
    if (shape > 0).mean() <= mean:
        return None
    low, high = 0.0, 1.0
    while np.minimum(high * shape, 1.0).mean() < mean and high < 1e6:
        high *= 2
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if np.minimum(middle * shape, 1.0).mean() >= mean else (middle, high)
    return np.minimum(high * shape, 1.0)


def fluid(host: TraceHost) -> tuple[float, float]:
    """What part of all demand a host delivers, and for what part of the time it cannot, if nothing comes in bursts."""
    total = host.demand.sum(axis=1)
    return float(np.minimum(total, host.spec.cpus).sum() / total.sum()), float((total > host.spec.cpus).mean())


def given(one: InstanceSpec) -> Demand:
    """What the prediction knows of a VM's demand."""
    return from_mean(one.demand_cpus, one.vcpus)


def scene_of(host: HostSpec, demand_of: Mapping[str, Demand] | None = None) -> SceneBatch:
    """The host with what the prediction knows."""
    known = demand_of or {one.id: given(one) for one in host.instances}
    instances = [Instance(one.id, vcpus=one.vcpus, demand={"cpu": known[one.id]}) for one in host.instances]
    return build_batch([(Host("h", "kvm", pcpus=host.cpus, memory_mb=1.0), instances)], ProfileTable.build(()))


def predict(hosts: Sequence[HostSpec]) -> list[HostOutcome]:
    """What the analytic model says of hosts of which means are known, under a scheduler as the simulation's."""
    nan, found = float("nan"), []
    for host in hosts:
        cpu = solve(scene_of(host), fluid=True).cpu
        outcomes = {
            one.id: InstanceOutcome(float(cpu.share[0, at]), float(cpu.short[0, at]), nan, nan, nan)
            for at, one in enumerate(host.instances)
        }
        found.append(HostOutcome(outcomes, float(cpu.crowded[0])))
    return found


def simulated(hosts: Sequence[TraceHost], out: Path) -> list[records.HostRecord]:
    """The hosts with what they got; those that `out` holds already are not simulated again."""
    done = {record.spec.id: record for record in records.read(out)} if out.exists() else {}
    for count, host in enumerate(hosts, start=1):
        if host.spec.id not in done:
            rows = np.vstack([host.demand[-1:], host.demand])  # the day before is like this one
            got = simulate(host.spec, host.seed, length=Length(least=8, warm_up=1), demand=rows)
            done[host.spec.id] = records.HostRecord(
                host.spec, got.outcome, ORIGIN, host.seed, share_error=got.share_error
            )
            records.append(out, done[host.spec.id])
        sys.stderr.write(f"\r{count} of {len(hosts)} hosts ")
    sys.stderr.write("\n")
    return [done[host.spec.id] for host in hosts]


def table(found: Sequence[records.HostRecord]) -> str:
    """Errors and coverage by trace, loop and load, with 90 % bootstrap intervals over hosts."""
    head = ["trace", "loops", "load", "hosts", "MAE of share", "bias of share", "MAE of contended time, points",
            "the host's, points", "held by the 90 % range", "of VMs below 0.99"]  # fmt: skip
    names = [(trace, loops) for trace in _values(found, 0) for loops in _values(found, 2)]
    groups = [(trace, loops, load) for trace, loops in names for load in ("all", *(f"{one:.2f}" for one in LOADS))]
    return markdown.table(head, [row for group in groups if (row := _row(group, found))])


def _values(found: Sequence[records.HostRecord], place: int) -> list[str]:
    return list(dict.fromkeys(record.spec.id.split("-")[place] for record in found))


def _row(group: tuple[str, str, str], found: Sequence[records.HostRecord]) -> list[str]:
    trace, loops, load = group
    some = []
    for record in found:
        parts = record.spec.id.split("-")
        if (parts[0], parts[2]) == (trace, loops) and load in ("all", parts[4]):
            some.append(record)
    if not some:
        return []
    errors = [errors_of(record) for record in some]
    return [
        trace, loops, load, str(len(some)),
        str(_over_hosts([one.share for one in errors], absolute=True)),
        str(_over_hosts([one.share for one in errors])),
        str(_over_hosts([100 * one.short for one in errors], absolute=True)),
        str(_over_hosts([np.array([100 * one.host_short]) for one in errors], absolute=True)),
        str(_over_hosts([one.held.astype(np.float64) for one in errors])),
        str(_over_hosts([one.held[one.waited].astype(np.float64) for one in errors])),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Errors:
    """Predicted less simulated `share` and `short` of each VM of a host, (n,), and `host_short`; whether each share is
    `held` by its 90 % range, and whether the VM `waited`: it got less than 0.99."""

    share: Floats
    short: Floats
    host_short: float
    held: Bools
    waited: Bools


def errors_of(record: records.HostRecord) -> Errors:
    """What the prediction misses of one host."""
    said, was = predict([record.spec])[0], record.outcome
    names = [one.id for one in record.spec.instances]
    shares = np.array([was.instances[name].share for name in names])
    # Xen's traits are those of the simulation: equal weights, and no wait while some CPU idles.
    as_simulated = replace(scene_of(record.spec), kind=np.zeros(1, dtype=np.int64))
    band = PriorPredictor().predict(as_simulated, ("throughput",)).throughput
    return Errors(
        np.array([said.instances[name].share for name in names]) - shares,
        np.array([said.instances[name].short - was.instances[name].short for name in names]),
        said.short - was.short,
        (band.lower[0] <= shares) & (shares <= band.upper[0]),
        shares < 0.99,
    )


def _over_hosts(values: Sequence[Floats], *, absolute: bool = False) -> Figure:
    """The mean over all values, with a 90 % bootstrap interval over the hosts that they are of."""
    kept = [np.abs(one) if absolute else one for one in values if len(one)]
    if not kept:
        return Figure(*[float("nan")] * 3)
    total, count = np.array([one.sum() for one in kept]), np.array([len(one) for one in kept], dtype=np.float64)
    picked = np.random.default_rng(SEED).integers(len(kept), size=(RESAMPLES, len(kept)))
    low, high = np.percentile(total[picked].sum(axis=1) / count[picked].sum(axis=1), (5, 95))
    return Figure(float(total.sum() / count.sum()), float(low), float(high))


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate what the file does not hold yet, and print the table."""
    parser = argparse.ArgumentParser(prog="research.contention.trace_mixes", description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True, help="what was simulated, one JSON line a host")
    parser.add_argument("--hosts", type=int, default=1, help="of each size, load, kind and loop")
    options = parser.parse_args(arguments)
    hosts = [
        host for path in options.traces for host in hosts_of(path.name.split("-")[0], days_of(path), options.hosts)
    ]
    found = simulated(hosts, options.out)
    sys.stdout.write(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
