"""Placement policies on real hosts: eight control groups with a fifth of a CPU each, and containers that replay VMs.

    python -m research.contention.group_policies TRACES OUTPUT [--sets 6] [--segments 3] [--minutes 60]

TRACES holds the traces of PlanetLab. Every policy places the same 48 VMs one after the other by what they did in the
first half of a day. Then they do what they did in the second half, a window of five minutes in each second. A CPU of a
host is a fifth of a real one. Runs are interleaved; each is one line of OUTPUT, as of `container_runs`, and a run that
is there is not made again. Policies with a parameter have the value that is best on other VMs, judged by windows.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.errors import LabError, StopRequested
from lab.signals import stoppable
from models.arrays import Floats
from research.contention.container_mixes import (
    HOSTS_OF_A_SET,
    MEASURED_S,
    QUOTA_CPUS,
    WARM_UP_S,
    Mix,
    MixHost,
    PlannedContainer,
)
from research.contention.container_runs import measure_all
from research.contention.host_spec import InstanceSpec
from research.contention.policies import BASELINES, Hosts, Risk
from research.contention.policy_tables import OURS, least_risk, mean_and_ends
from research.contention.policy_world import World, planetlab, short_time
from research.contention.product_policy import ProductPolicy, demands

SIZE = 48  # VMs in a set
MOST = 9  # VMs on a host, so that there is a choice: six are there on average
LOADS = (0.7, 0.85, 1.0)  # of all hosts by the past, in turn
TUNING = 6  # sets that choose parameters and are not measured
BURST_MS = 4.0  # of a real CPU: 20 ms of a host's
PERIOD_MS = 100  # of its bandwidth: a burst that is alone there is not held back
FIGURES = ("lost", "short_100ms", "short_1s")


def draw(world: World, number: int) -> World:
    """Set `number`: SIZE VMs of one vCPU whose past asks for one of LOADS."""
    rng = np.random.default_rng(1000 + number)
    chosen = world.of(rng.choice(len(world), SIZE, replace=False))
    past, future = chosen.past / chosen.vcpus, chosen.future / chosen.vcpus
    scale = LOADS[number % len(LOADS)] * HOSTS_OF_A_SET / past.mean(axis=0).sum()
    return World(
        f"set{number:02}", np.ones(SIZE, dtype=np.int64), np.minimum(scale * past, 1.0), np.minimum(scale * future, 1.0)
    )


def by_risk(world: World, risk: Risk) -> list[int]:
    """The host of each VM when a policy places them one after the other."""
    hosts = Hosts.empty(world, HOSTS_OF_A_SET, 1.0, float(MOST))
    return [least_risk(hosts, vm, risk) for vm in range(len(world))]


def by_product(world: World) -> list[int]:
    """The same of the product."""
    product, host_of = ProductPolicy(world, demands(world), HOSTS_OF_A_SET, 1, MOST), []
    for vm in range(len(world)):
        host_of.append(product.best(vm))
        product.put(vm, host_of[-1])
    return host_of


def tuned(world: World) -> dict[str, Risk]:
    """Each policy with the value of its parameter that leaves least time short on sets that are not measured."""
    sets = [draw(world, 100 + number) for number in range(TUNING)]
    found = {}
    for policy, settings in BASELINES.items():
        losses = {
            name: sum(short_time(each, by_risk(each, risk), 1.0) for each in sets) for name, risk in settings.items()
        }
        found[policy] = settings[min(losses, key=losses.__getitem__)]
    return found


def plan(world: World, sets: int, segments: int) -> list[Mix]:
    """All runs, interleaved: every policy, set and segment of the future."""
    risks, mixes = tuned(world), []
    for number in range(sets):
        chosen = draw(world, number)
        placed = {policy: by_risk(chosen, risk) for policy, risk in risks.items()} | {OURS: by_product(chosen)}
        mixes += [
            mix_of(chosen, segment, segments, policy, host_of)
            for segment in range(segments)
            for policy, host_of in placed.items()
        ]
    return [mixes[at] for at in np.random.default_rng(9).permutation(len(mixes))]


def mix_of(world: World, segment: int, segments: int, policy: str, host_of: Sequence[int]) -> Mix:
    """One run: the VMs where a policy put them, in a segment of their future."""
    windows = WARM_UP_S + MEASURED_S
    first = round((len(world.future) - windows) * (segment + 0.5) / segments)
    future = QUOTA_CPUS * world.future[first : first + windows]
    hosts = [
        MixHost(
            f"h{host}",
            (host % 2,),
            tuple(
                container(future, vm, 1000 * segment + vm) for vm in np.flatnonzero(np.array(host_of) == host).tolist()
            ),
            QUOTA_CPUS,
            PERIOD_MS,
        )
        for host in range(HOSTS_OF_A_SET)
    ]
    used = tuple(host for host in hosts if host.containers)
    return Mix(f"{world.name}-{segment}-{policy}", "policies", segment, used, f"{world.name}-{segment}", policy)


def container(future: Floats, vm: int, seed: int) -> PlannedContainer:
    """A VM as a container that replays its demand in `future` (seconds, N), real CPUs."""
    demand = tuple(float(value) for value in future[:, vm])
    mean, spread = max(statistics.fmean(demand), 1e-4), float(np.std(demand))
    spec = InstanceSpec(f"c{vm}", 1, mean, "open", BURST_MS, spread, 0.0, 256.0, math.inf, ())
    return PlannedContainer(spec, "trace", "exponential", demand, seed)


def figures(record: Mapping[str, Any]) -> dict[str, float]:
    """Of one run: the part of the CPU time wanted that was not got, and the parts of instance-time short.

    Instances that asked for nothing do not count.
    """
    outcomes = [one["outcome"] for host in record["hosts"] for one in host["containers"]]
    asked = [one for one in outcomes if one["share"] is not None]
    run, wait = (sum(one[name] for one in asked) for name in ("run_s", "wait_s"))
    return {
        "lost": wait / (run + wait),
        "short_100ms": statistics.fmean(one["short_100ms"] for one in asked),
        "short_1s": statistics.fmean(one["agent"]["short_1s"] for one in asked),
    }


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """Per policy the figures of undisturbed runs, and how much less time is lost by the product.

    That is the mean of differences on the same VMs and times, with its 90 % bootstrap interval.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for record in records:
        if not record["disturbed"]:
            found.setdefault(record["placement"], {})[record["instances"]] = figures(record)
    lines = ["| policy | runs | " + " | ".join(f"{name}, %" for name in FIGURES) + " | less by us, points: "]
    lines[0] += " | ".join(FIGURES) + " |"
    lines.append("|---" * (2 + 2 * len(FIGURES)) + "|")
    ours = found.get(OURS, {})
    for policy, runs in found.items():
        means = [f"{100 * statistics.fmean(run[name] for run in runs.values()):.1f}" for name in FIGURES]
        both = sorted(set(runs) & set(ours))
        gains = ["" if policy == OURS or not both else _gain(runs, ours, both, name) for name in FIGURES]
        lines.append(f"| {policy} | {len(runs)} | " + " | ".join([*means, *gains]) + " |")
    return "\n".join(lines) + "\n"


def _gain(
    runs: Mapping[str, Mapping[str, float]], ours: Mapping[str, Mapping[str, float]], both: Sequence[str], name: str
) -> str:
    return "{:.1f} [{:.1f}, {:.1f}]".format(*mean_and_ends([100 * (runs[at][name] - ours[at][name]) for at in both]))


def read(path: Path) -> list[dict[str, Any]]:
    """The runs of a file; ValueError names the line that is none."""
    records = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return [record for record in records if record.get("family") == "policies"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("output", type=Path, help="file of runs, one JSON object a line; continued when it is there")
    parser.add_argument("--sets", type=int, default=6)
    parser.add_argument("--segments", type=int, default=3, help="parts of the future in which each placement is run")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no run after so long; 0 = only the table")
    options = parser.parse_args(arguments)
    try:
        if options.minutes > 0:
            until_s = time.monotonic() + 60 * options.minutes
            mixes = plan(planetlab(options.traces), options.sets, options.segments)
            with stoppable():
                measure_all(mixes, options.output, until_s=until_s, limit=None)
        sys.stdout.write(table(read(options.output)))
    except StopRequested as stop:
        sys.stderr.write(f"stopped by {stop}: start again to go on\n")
        return 130
    except (LabError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
