"""Newcomers placed one after the other on clouds of large hosts without profiles, by the product and by rules.

    python -m research.benchmarks.newcomers [--seeds 24] [--busy 6] [--newcomers 100] [--kinds] [--never-known]
        [--spread 0.76] [--model DIR]

The clouds are those of `research.benchmarks.proxlb.cluster`: 12 hosts of 64 CPUs and 150 VMs, the last of which come
anew. Of those that are there size and mean CPU time are known, of a newcomer its size until it is there, and its name.
The analytic model answers, or the trained one of `--model`, beside which the analytic one is a policy of its own. With
`--kinds` a name says what the VM is, and VMs of a kind want alike; with `--never-known` no policy ever learns what
newcomers want, as where all come at once. Demand varies by `--spread` of its mean, which no policy knows, and an
event simulation judges.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from advisor.domain import Instance, Inventory, Objective, PlacementRequest
from advisor.placement.decision import recommend
from advisor.prediction.active import ActivePredictor, load
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools, Floats
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from profiler.demand import Demand
from research import markdown
from research.benchmarks.clouds.runs import interval
from research.benchmarks.proxlb.cluster import (
    CPUS,
    HOSTS,
    MEMORY_MB,
    MOST_BUSY,
    NOW,
    OVERCOMMIT,
    SIGMA,
    SPREAD,
    UTILISATION,
    Places,
    SimulatedCluster,
    made_up,
)
from research.contention.newcomer_world import from_0_to_1

KINDS = ("app", "batch", "ci", "db", "k8s", "mon", "web", "win")
OF_KIND = 0.8  # standard deviation of the logarithm of a vCPU's mean demand, of SIGMA in all
FIGURES = ("simulated short, %", "simulated below 0.9", "simulated below 0.8")


@dataclass(frozen=True, slots=True)
class NewcomerCluster:
    """A cluster with every instance's demand, and who of it is not there yet, in the order of coming."""

    cluster: SimulatedCluster
    newcomers: tuple[Instance, ...]
    never_known: bool

    @classmethod
    def draw(
        cls, seed: int, busy: float, newcomers: int, *, kinds: bool, never_known: bool, spread: float = SPREAD
    ) -> NewcomerCluster:
        """Cloud number `seed`."""
        inventory = made_up(seed, busy)
        if kinds:
            inventory = _of_kinds(inventory, seed, busy)
        cluster = SimulatedCluster.of(inventory, seed, spread)
        return cls(cluster, inventory.instances[len(inventory.instances) - newcomers :], never_known)

    @property
    def residents(self) -> tuple[Instance, ...]:
        """Who is there at the beginning."""
        everybody = self.cluster.inventory.instances
        return everybody[: len(everybody) - len(self.newcomers)]

    def judged(self, hosts: Sequence[int]) -> Mapping[str, float]:
        """FIGURES with the newcomers on these hosts."""
        names = [host.id for host in self.cluster.inventory.hosts]
        came: Places = {one.id: names[at] for one, at in zip(self.newcomers, hosts, strict=True)}
        return self.cluster.after({**self.cluster.places, **came}).judged()


Choose = Callable[[NewcomerCluster], Sequence[int]]
"""The host of each newcomer, by position."""


def _of_kinds(inventory: Inventory, seed: int, busy: float) -> Inventory:
    """The same VMs with names and demands by kind; the logarithm of a demand varies as much as before."""
    rng = np.random.default_rng([seed, len(KINDS)])
    level = dict(zip(KINDS, rng.normal(UTILISATION, OF_KIND, len(KINDS)), strict=True))
    instances = []
    for one in inventory.instances:
        kind = str(rng.choice(KINDS))
        each = busy * math.exp(rng.normal(level[kind], math.sqrt(SIGMA**2 - OF_KIND**2)))
        mean = min(each, MOST_BUSY) * one.vcpus
        instances.append(replace(one, id=one.id.replace("vm", kind), demand={"cpu": Demand(mean)}))
    return replace(inventory, instances=tuple(instances))


def product(objective: Objective, predictor: Predictor, arrivals: NewcomerCluster) -> Sequence[int]:
    """Ask about each newcomer in turn, and put it on the host that the answer names first."""
    hosts = arrivals.cluster.inventory.hosts
    position = {host.id: at for at, host in enumerate(hosts)}
    seen = dict.fromkeys(position, NOW)
    inventory = Inventory(hosts, arrivals.residents)
    snapshot = ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=NOW)
    context = QuestionContext(ActivePredictor(predictor), NOW, math.inf)
    chosen = []
    for one in arrivals.newcomers:
        newcomer = replace(one, host=None, demand={})
        request = PlacementRequest(newcomer, objective=objective, limit=1, explain=False, mitigate=False)
        best = recommend(snapshot, context, request).candidates[0].host
        chosen.append(position[best])
        came = replace(newcomer if arrivals.never_known else one, host=best)
        snapshot = snapshot.changed(seen={}, pending=(), taken_at=NOW, instances={one.id: came})
    return chosen


@dataclass(frozen=True, slots=True)
class HostSums:
    """What is on each host, (HOSTS,): vCPUs, MB, and CPUs that are wanted as far as anybody knows."""

    vcpus: Floats
    memory_mb: Floats
    cpu: Floats

    def fits(self, one: Instance) -> Bools:
        """Where a VM may go by promise."""
        return np.asarray((self.vcpus + one.vcpus <= OVERCOMMIT * CPUS) & (self.memory_mb + one.memory_mb <= MEMORY_MB))

    def put(self, host: int, one: Instance, cpu: float) -> None:
        """A VM comes."""
        self.vcpus[host] += one.vcpus
        self.memory_mb[host] += one.memory_mb
        self.cpu[host] += cpu


def by_rule(weight: Callable[[HostSums, Bools], Floats], arrivals: NewcomerCluster) -> Sequence[int]:
    """Each newcomer on the host that has the greatest weight of those where it fits, the first of equal ones.

    What is not known counts as the mean of the kind, per vCPU.
    """
    position = {host.id: at for at, host in enumerate(arrivals.cluster.inventory.hosts)}
    sums = HostSums(*np.zeros((3, HOSTS)))
    for one in arrivals.residents:
        sums.put(position[str(one.host)], one, one.demand["cpu"].mean)
    chosen = []
    for one in arrivals.newcomers:
        fits = sums.fits(one)
        host = int(np.where(fits, weight(sums, fits).round(9), -np.inf).argmax())
        sums.put(host, one, _usual(arrivals, one) if arrivals.never_known else one.demand["cpu"].mean)
        chosen.append(host)
    return chosen


def _usual(arrivals: NewcomerCluster, newcomer: Instance) -> float:
    alike = [one for one in arrivals.residents if _kind(one) == _kind(newcomer)] or arrivals.residents
    return newcomer.vcpus * sum(one.demand["cpu"].mean for one in alike) / sum(one.vcpus for one in alike)


def _kind(one: Instance) -> str:
    return one.id.partition("-")[0]


def nova(sums: HostSums, fits: Bools) -> Floats:
    """Nova's CPU and RAM weighers: free vCPUs and free memory, each from 0 to 1 over the hosts that pass."""
    weight = np.zeros(len(fits))
    weight[fits] = from_0_to_1(-sums.vcpus[fits]) + from_0_to_1(-sums.memory_mb[fits])
    return weight


RULES: Mapping[str, Callable[[HostSums, Bools], Floats]] = {
    "first fit": lambda sums, _fits: np.zeros(len(sums.cpu)),
    "Nova's weighers": nova,
    "fewest vCPUs": lambda sums, _fits: -sums.vcpus,
    "least CPU by means": lambda sums, _fits: -sums.cpu,
}


def policies(predictor: Predictor) -> Mapping[str, Choose]:
    """By what they are called in the table; the first is the product's default."""
    ours: dict[str, Choose] = {
        "Cotenant": partial(product, "worst", predictor),
        "Cotenant, total": partial(product, "total", predictor),
    }
    if predictor.origin != "prior":
        ours["Cotenant, analytic model"] = partial(product, "worst", PriorPredictor())
    return ours | {name: partial(by_rule, weight) for name, weight in RULES.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24, help="clouds (24)")
    parser.add_argument("--busy", type=float, default=6.0, help="what multiplies demand (6)")
    parser.add_argument("--newcomers", type=int, default=100, help="of the 150 VMs (100)")
    parser.add_argument("--kinds", action="store_true", help="names say what a VM is")
    parser.add_argument("--never-known", action="store_true", help="the demand of new VMs is never learned")
    parser.add_argument("--spread", type=float, default=SPREAD, help="of demand, as a part of its mean (%(default)s)")
    parser.add_argument("--model", type=Path, metavar="DIR", help="of a trained model (the analytic one)")
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        parser.error("--seeds must be at least 2: one cloud tells nothing of chance")
    predictor = load(options.model) if options.model else PriorPredictor()
    clouds = [
        NewcomerCluster.draw(
            seed,
            options.busy,
            options.newcomers,
            kinds=options.kinds,
            never_known=options.never_known,
            spread=options.spread,
        )
        for seed in range(1, options.seeds + 1)
    ]
    wanted = [sum(one.demand["cpu"].mean for one in each.cluster.inventory.instances) for each in clouds]
    sys.stdout.write(f"wanted: {np.mean(wanted) / (HOSTS * CPUS):.2f} of all CPUs\n\n")
    found = {name: [each.judged(choose(each)) for each in clouds] for name, choose in policies(predictor).items()}
    sys.stdout.write(table(found))
    return 0


def table(found: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Means over clouds by policy, and how much less the first has on the same clouds (95 % bootstrap intervals)."""
    ours = next(iter(found.values()))
    rows = []
    for name, each in found.items():
        cells = [f"{np.mean([one[figure] for one in each]):.1f}" for figure in FIGURES]
        less = [_interval([one[FIGURES[0]] - mine[FIGURES[0]] for one, mine in zip(each, ours, strict=True)])]
        rows.append([name, *cells, *(less if each is not ours else [""])])
    return markdown.table(["policy", *FIGURES, "less short with Cotenant"], rows)


def _interval(differences: Sequence[float]) -> str:
    low, high = interval(differences) or (math.nan, math.nan)
    return f"{np.mean(differences):.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    sys.exit(main())
