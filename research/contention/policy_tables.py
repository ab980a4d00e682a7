"""Placement policies on public traces: time short at equal hosts, and hosts needed for little of it.

python -m research.contention.policy_tables DIR [--json FILE] [--vms N] [--orders N]

DIR holds the traces of PlanetLab and Bitbrains. Every policy places the same VMs in the same orders of arrival by what
they did in the past; then their future comes, and who gets less than 0.95 of what it wants is short. Parameters of
policies are chosen on orders of their own.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from models.physics.cpu_contention import compile_all
from profiler.demand import Demand
from research.contention.host_spec import HostSpec, InstanceSpec
from research.contention.policies import BASELINES, Hosts, Risk
from research.contention.policy_world import World, bitbrains, planetlab, short_time
from research.contention.product_policy import MANY, ProductPolicy, demands
from research.contention.simulator import Length, simulate

CPUS = (16, 64)
OVERCOMMIT = (1, 2, 4, 6, 8)
MOST_SHORT = 0.01  # of all instance-time
LEVELS, SHORT_LEVELS = (1e-3, 200.0), (1e-4, 0.5)  # where a level is looked for: of risks, and of our time short
HALVINGS = 12
OURS, ORACLE = "cotenant", "peak oracle"
RESAMPLES = 2000
SIMULATED, WINDOW_S = 24, 10.0  # windows of each host that are simulated, after one to warm up, and seconds of each
BURST_MS, MOST_BUSY, LEAST_CPUS = 20.0, 0.97, 1e-4
TUNING = 2  # orders of arrival that choose parameters


@dataclass(frozen=True, slots=True)
class Placed:
    """One run: how many hosts, and the part of all instance-time that was `short`, by the demand of whole windows; and
    `simulated`, by the event simulation of bursts in some of the windows, with what share was `lost` there."""

    table: str
    trace: str
    cpus: int
    overcommit: float
    policy: str
    setting: str
    order: int
    hosts: int
    short: float
    simulated: float = math.nan
    lost: float = math.nan


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="research.contention.policy_tables", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", type=Path, help="write every run to this file")
    parser.add_argument("--vms", type=int, default=400, help="VMs in each run")
    parser.add_argument("--orders", type=int, default=4, help="orders of arrival that are judged; TUNING more tune")
    options = parser.parse_args(arguments)
    try:
        worlds = [planetlab(options.directory), bitbrains(options.directory)]
    except (OSError, ValueError) as error:
        sys.stderr.write(f"the traces cannot be read: {error}\n")
        return 1
    compile_all()
    runs = [run for world in worlds for run in of_world(world, options.vms, options.orders)]
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in runs]), encoding="utf-8")
    sys.stdout.write(tables(runs))
    return 0


def of_world(world: World, vms: int, orders: int) -> list[Placed]:
    """All runs of a trace. The first TUNING orders choose parameters, the others are judged."""
    runs: list[Placed] = []
    known = demands(world)
    for cpus in CPUS:
        arrivals = [_arrivals(world, known, vms, cpus, order) for order in range(orders + TUNING)]
        levels = [highest_levels(part, part_known, cpus) for part, part_known in arrivals[:TUNING]]
        chosen = {key: min(one[key] for one in levels) for key in levels[0]}
        for order, (part, part_known) in enumerate(arrivals):
            sys.stderr.write(f"{world.name}, hosts of {cpus} CPUs, order {order + 1} of {len(arrivals)}\n")
            for overcommit in OVERCOMMIT:
                runs += equal_hosts(part, part_known, cpus, overcommit, order)
            runs += packed(part, part_known, cpus, chosen, order)
    return runs


def _arrivals(world: World, known: list[Demand], vms: int, cpus: int, order: int) -> tuple[World, list[Demand]]:
    """VMs in an order of arrival. One with more vCPUs than a host has CPUs is left out: hosts refuse it."""
    which = np.random.default_rng(100 + order).permutation(np.flatnonzero(world.vcpus <= cpus))[:vms]
    return world.of(which), [known[at] for at in which.tolist()]


def equal_hosts(world: World, known: list[Demand], cpus: int, overcommit: int, order: int) -> list[Placed]:
    """Every policy spreads all VMs over as many hosts as the overcommit gives, one after the other."""
    count = math.ceil(world.vcpus.sum() / (cpus * overcommit))
    if count < 2:
        return []
    mean = world.vcpus.sum() / count
    most = math.ceil(max(1.5 * mean, mean + world.vcpus.max()))  # room to choose, and always for one more

    def judged(policy: str, setting: str, host_of: list[int]) -> Placed:
        time, bursts = short_time(world, host_of, cpus), simulated(world, host_of, cpus, order)
        return Placed("equal", world.name, cpus, overcommit, policy, setting, order, count, time, *bursts)

    runs = []
    for policy, settings in BASELINES.items():
        for setting, risk in settings.items():
            hosts = Hosts.empty(world, count, cpus, most)
            runs.append(judged(policy, setting, [least_risk(hosts, vm, risk) for vm in range(len(world))]))
    ours = ProductPolicy(world, known, count, cpus, most)
    host_of = []
    for vm in range(len(world)):
        host_of.append(ours.best(vm))
        ours.put(vm, host_of[-1])
    runs.append(judged(OURS, "", host_of))
    return runs


def simulated(world: World, host_of: Sequence[int], cpus: int, seed: int) -> tuple[float, float]:
    """The part of all instance-time short of CPU, and the mean share lost, where demand comes in bursts.

    SIMULATED windows of the future, evenly chosen, are simulated for WINDOW_S seconds each: open loops of exponential
    bursts at random, as the traces show nothing below five minutes.
    """
    places, rows = np.asarray(host_of), np.linspace(0, len(world.future) - 1, SIMULATED + 1).astype(int)
    short = lost = 0.0
    for host in np.unique(places):
        there = np.flatnonzero(places == host)
        demand = np.minimum(world.future[np.ix_(rows, there)], MOST_BUSY * world.vcpus[there])
        instances = tuple(
            InstanceSpec(f"v{vm}", int(world.vcpus[vm]), float(max(mean, LEAST_CPUS)), "open", BURST_MS)
            for vm, mean in zip(there.tolist(), demand.mean(axis=0), strict=True)
        )
        spec = HostSpec(f"h{host}", cpus, instances, window_s=WINDOW_S)
        outcome = simulate(spec, seed, length=Length(warm_up=1, least=4), demand=demand).outcome
        for one in outcome.instances.values():
            short += one.short_95
            lost += 1 - one.share if math.isfinite(one.share) else 0.0
    return short / len(places), lost / len(places)


def least_risk(hosts: Hosts, vm: int, risk: Risk) -> int:
    """Put a VM on the host with least risk that has room, of equal ones the first. Raises ValueError without room."""
    fits = hosts.fits(vm)
    if not fits.any():
        raise ValueError(f"no host has room for VM {vm}")
    value = np.where(fits, risk(hosts, vm), np.inf)
    best = int(value.argmin())
    hosts.put(vm, best)
    return best


def packed(
    world: World, known: list[Demand], cpus: int, levels: Mapping[tuple[str, str], float], order: int
) -> list[Placed]:
    """Every policy packs all VMs: each goes to the fullest host whose risk stays below a level, else to a new one."""
    runs = []
    for policy, setting, pack in _packers(world, known, cpus):
        host_of = pack(levels[policy, setting])
        runs.append(_packed(world, cpus, policy, setting, order, host_of))
    return runs


def highest_levels(world: World, known: list[Demand], cpus: int) -> dict[tuple[str, str], float]:
    """The highest level of each policy and setting at which no more than MOST_SHORT is short, by halving.

    LEVELS holds every risk that a policy can give; a range that a policy's risks lie outside of would not tune it.
    """
    found = {}
    for policy, setting, pack in _packers(world, known, cpus):
        low, high = SHORT_LEVELS if policy == OURS else LEVELS
        for _ in range(HALVINGS):
            middle = math.sqrt(low * high)
            if short_time(world, pack(middle), cpus) <= MOST_SHORT:
                low = middle
            else:
                high = middle
        found[policy, setting] = low
    return found


def _packers(world: World, known: list[Demand], cpus: int) -> Iterator[tuple[str, str, Callable[[float], list[int]]]]:
    """Each policy and setting, and how it packs at a level."""
    for policy, settings in BASELINES.items():
        for setting, risk in settings.items():
            yield policy, setting, partial(_pack, world, cpus, risk)

    def ours(level: float) -> list[int]:
        cotenant = ProductPolicy(world, known, _most_hosts(world, cpus), cpus, MANY)
        return _pack(world, cpus, cotenant.risk, level, cotenant.put)

    yield OURS, "", ours


def _packed(world: World, cpus: int, policy: str, setting: str, order: int, host_of: list[int]) -> Placed:
    time = short_time(world, host_of, cpus)
    return Placed("packed", world.name, cpus, 0.0, policy, setting, order, len(set(host_of)), time)


def _most_hosts(world: World, cpus: int) -> int:
    return math.ceil(2 * float(world.vcpus.sum()) / cpus) + 1


def _pack(
    world: World, cpus: int, risk: Risk, level: float, put: Callable[[int, int], None] | None = None
) -> list[int]:
    hosts = Hosts.empty(world, _most_hosts(world, cpus), cpus, math.inf)
    host_of = []
    for vm in range(len(world)):
        value = risk(hosts, vm)
        used = hosts.promised > 0
        open_ = np.flatnonzero(used & (value <= level))
        if len(open_):
            best = int(open_[np.argmax(hosts.total[open_].mean(axis=1))])
        else:
            best = int((~used).argmax()) if not used.all() else int(value.argmin())
        hosts.put(vm, best)
        if put is not None:
            put(vm, best)
        host_of.append(best)
    return host_of


def tables(runs: Sequence[Placed]) -> str:
    """All tables in Markdown."""
    return "\n".join(
        (
            "Per cent of instance-time short, simulated with bursts\n",
            equal_table(runs, "simulated"),
            "Per cent of instance-time short, by windows of five minutes\n",
            equal_table(runs, "short"),
            f"Hosts needed for at most {MOST_SHORT:.0%} short, by windows of five minutes, and what was short then\n",
            packed_table(runs),
            f"Policies better than {OURS}: points of instance-time that it is short for longer, paired by order\n",
            *(better_table(runs, what) for what in ("simulated", "short")),
        )
    )


def equal_table(runs: Sequence[Placed], what: str) -> str:
    """Per cent at equal hosts, with 90 % bootstrap intervals over orders of arrival."""
    rows = [run for run in runs if run.table == "equal"]
    groups = sorted(
        {(run.trace, run.cpus, run.overcommit) for run in rows}, key=lambda one: (one[0] != "PlanetLab", one)
    )
    policies = [*BASELINES, OURS]
    lines = [
        "| trace | CPUs | vCPUs per CPU | hosts | " + " | ".join(policies) + " |",
        "|---" * (4 + len(policies)) + "|",
    ]
    for trace, cpus, overcommit in groups:
        here = [run for run in rows if (run.trace, run.cpus, run.overcommit) == (trace, cpus, overcommit)]
        cells = [_interval([100 * getattr(run, what) for run in _tuned(here, policy, what)]) for policy in policies]
        hosts = round(statistics.fmean(run.hosts for run in here))
        lines.append(f"| {trace} | {cpus} | {overcommit:g} | {hosts} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def better_table(runs: Sequence[Placed], what: str) -> str:
    """Policies that are better than ours at equal hosts: both place the same arrivals, so differences are paired."""
    lines = ["| judge | trace | CPUs | vCPUs per CPU | policy | points |", "|---" * 6 + "|"]
    rows = [run for run in runs if run.table == "equal"]
    for trace, cpus, overcommit in dict.fromkeys((run.trace, run.cpus, run.overcommit) for run in rows):
        here = [run for run in rows if (run.trace, run.cpus, run.overcommit) == (trace, cpus, overcommit)]
        ours = [getattr(run, what) for run in _tuned(here, OURS, what)]
        for policy in BASELINES:
            theirs = [getattr(run, what) for run in _tuned(here, policy, what)]
            points = [100 * (own - other) for own, other in zip(ours, theirs, strict=True)]
            if points and mean_and_ends(points)[1] > 0:
                lines.append(f"| {what} | {trace} | {cpus} | {overcommit:g} | {policy} | {_interval(points)} |")
    return "\n".join(lines) + "\n"


def _tuned(runs: Sequence[Placed], policy: str, what: str) -> list[Placed]:
    """The judged runs of a policy under the setting that was best on the orders that tune."""
    own = [run for run in runs if run.policy == policy]
    cost: dict[str, float] = {}
    for run in own:
        cost[run.setting] = cost.get(run.setting, 0.0) + (getattr(run, what) if run.order < TUNING else 0.0)
    best = min(cost, key=lambda setting: cost[setting])
    return [run for run in own if run.setting == best and run.order >= TUNING]


def packed_table(runs: Sequence[Placed]) -> str:
    """Hosts needed, times those of the peak oracle, and per cent short, at the level right for all tuning orders."""
    rows = [run for run in runs if run.table == "packed"]
    groups = dict.fromkeys((run.trace, run.cpus) for run in rows)
    policies = [*BASELINES, OURS]
    lines = ["| trace | CPUs | " + " | ".join(policies) + " |", "|---" * (2 + len(policies)) + "|"]
    for trace, cpus in groups:
        here = [run for run in rows if (run.trace, run.cpus) == (trace, cpus)]
        cells = []
        oracle = statistics.fmean(run.hosts for run in _fewest(here, ORACLE))
        for policy in policies:
            judged = _fewest(here, policy)
            hosts = [float(run.hosts) for run in judged]
            short = 100 * statistics.fmean(run.short for run in judged)
            cells.append(f"{_interval(hosts)}; × {statistics.fmean(hosts) / oracle:.2f}; {short:.2f} %")
        lines.append(f"| {trace} | {cpus} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _fewest(runs: Sequence[Placed], policy: str) -> list[Placed]:
    """The judged runs under the setting that needed fewest hosts on the tuning orders."""
    own = [run for run in runs if run.policy == policy]
    hosts: dict[str, int] = {}
    for run in own:
        hosts[run.setting] = hosts.get(run.setting, 0) + (run.hosts if run.order < TUNING else 0)
    best = min(hosts, key=lambda setting: hosts[setting])
    return [run for run in own if run.setting == best and run.order >= TUNING]


def _interval(values: Sequence[float]) -> str:
    """The mean with its 90 % bootstrap interval."""
    return "{:.2f} [{:.2f}, {:.2f}]".format(*mean_and_ends(values)) if values else "-"


def mean_and_ends(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, and both ends of its 90 % bootstrap interval."""
    numbers = np.array(values)
    rng = np.random.default_rng(3)
    means = numbers[rng.integers(0, len(numbers), (RESAMPLES, len(numbers)))].mean(axis=1)
    low, high = np.quantile(means, (0.05, 0.95))
    return float(numbers.mean()), float(low), float(high)


if __name__ == "__main__":
    sys.exit(main())
