"""How much CPU an instance wants, from what it ran and waited: five ways, on simulated hosts where it is known.

python -m research.wanted_cpus [HOSTS]

Hosts are those of `research.contention.random_hosts` without caps. By load and kind of loop: by which factor each way
is off, up or down (exp of the root mean square of the logarithm), and the median of what it says over what is true.
Pressure is the part of the time in which some task waited: where all vCPUs wait alike, that of one of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from models.profiling.demand_estimation import wanted_cpus
from research.contention.host_spec import InstanceSpec
from research.contention.random_hosts import random_host
from research.contention.simulator import Length, simulate

LOADS = ((0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.1), (1.1, 1.3))
LENGTH = Length(windows=16, least=2, most=3, events=1_000_000)
LEAST = 0.01  # CPUs per vCPU: who wants less is not judged
WAYS = ("run", "run + wait", "run / (1 - wait)", "as here", "as here, by pressure")


def ways(run: float, wait: float, vcpus: int) -> tuple[float, ...]:
    """What each of WAYS says, in CPUs; the last two are what the product learns from waiting, and from pressure."""
    most = float(vcpus)
    free = 1 - wait / vcpus
    closed = min(run / free, most) if free > run / vcpus else most
    here, by_pressure = (wanted_cpus(run, one, vcpus) for one in (wait, wait / vcpus))
    return run, min(run + wait, most), closed, here, by_pressure


def of_host(seed: int, load: float) -> Iterator[tuple[InstanceSpec, tuple[float, ...]]]:
    """Each instance of a host with what is said of it."""
    drawn = random_host(f"h{seed}", seed, cpus=(2, 4, 8, 16, 32)[seed % 5], load=load)
    everybody = tuple(replace(one, cap_cpus=math.inf) for one in drawn.spec.instances)
    host = replace(drawn.spec, instances=everybody)
    found = simulate(host, seed, drawn.bursts, LENGTH)
    seconds = found.windows * host.window_s
    for one in everybody:
        outcome = found.outcome.instances[one.id]
        if one.demand_cpus / one.vcpus > LEAST:
            yield one, ways(outcome.run_s / seconds, outcome.wait_s / seconds, one.vcpus)


def errors(hosts: int) -> Mapping[tuple[str, tuple[float, float]], tuple[int, list[tuple[float, float]]]]:
    """By kind of loop and load: number of instances, and for each way its factor and its median ratio."""
    told: dict[tuple[str, tuple[float, float]], list[list[float]]] = {}
    for low, high in LOADS:
        for seed in range(hosts):
            for one, said in of_host(seed, low + (high - low) * (seed + 0.5) / hosts):
                logs = [math.log(max(value, LEAST / 10) / one.demand_cpus) for value in said]
                told.setdefault((one.loop, (low, high)), []).append(logs)
    found = {}
    for key, rows in sorted(told.items()):
        table = np.array(rows)
        factors = np.exp(np.sqrt((table**2).mean(axis=0))).tolist()
        found[key] = len(rows), list(zip(factors, np.exp(np.median(table, axis=0)).tolist(), strict=True))
    return found


def main(arguments: Sequence[str]) -> None:
    """Print a table."""
    sys.stdout.write("| loop | load | instances | " + " | ".join(WAYS) + " |\n" + "|---" * (3 + len(WAYS)) + "|\n")
    for (loop, (low, high)), (count, of_ways) in errors(int(arguments[0]) if arguments else 20).items():
        cells = [f"{factor:.2f} ({median:.2f})" for factor, median in of_ways]
        sys.stdout.write(f"| {loop} | {low:g}-{high:g} | {count} | " + " | ".join(cells) + " |\n")


if __name__ == "__main__":
    main(sys.argv[1:])
