"""Probes: what they found of hosts, instances and pairs, and which measurements would change a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from advisor.domain.questions import Objective
from profiler.host_kinds import HostKind
from profiler.observed import HELD_BACK, OWN_END, PROBED_VALUES, SHORT_GAPS, Instance, ProbeResult, parse_cpus

ProbePinning = Literal["same", "different", "shared"]
BUSY = 0.5  # tasks that ran or waited for each CPU in the minute before a probe: above, it measured what they left
PROBE_PINNINGS: tuple[ProbePinning, ...] = get_args(ProbePinning)


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a probe found on a host, or inside of an instance there; `peer` is the host or instance at its far end."""

    host: str
    result: ProbeResult
    taken_at: datetime
    instance: str = ""  # empty = the host itself
    peer: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What the newest one is kept of."""
        return self.host, self.instance, self.peer, self.result.probe

    @property
    def why_not_counted(self) -> str:
        """Why no answer counts with it; empty where those of a model do that learned from such results.

        A loop that does not get its CPU is what a probe of the CPU is there to find. The load of the machine tells
        whether other work took it.
        """
        if self.instance:
            return "it tells how one instance fares, and not what its host can do"
        if not any(name.startswith(f"{self.result.probe}.") for name in PROBED_VALUES):
            return "no model learns from this probe"
        if self.peer == self.host or self.result.circumstances.get("peer", "").endswith(OWN_END):
            return "both of its ends were on this machine"
        for mark in self.result.marks:
            if not mark.startswith(HELD_BACK) and SHORT_GAPS not in mark:
                return "it is marked"
        return _other_work(self.result.circumstances)


def _other_work(found: Mapping[str, str]) -> str:
    """That other work ran on the machine, by the load average of the minute before the probe; empty = not much."""
    try:
        load, cpus = float(found["load"].split()[0]), len(parse_cpus(found["cpus"]))
    except (KeyError, IndexError, ValueError):
        return ""  # it does not say
    return f"other work ran there: a load of {load:g} on {cpus} CPUs" if load > BUSY * cpus else ""


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Which measurements would change a decision? `instances` None = every one of the cloud, as if yet to be placed.

    `pinnings` are the forms that can be measured; a run takes `seconds_per_run` and what the lab needs around it.
    """

    budget_s: float
    instances: tuple[Instance, ...] | None = None
    seconds_per_run: int = 20
    rounds: int = 3
    pinnings: tuple[ProbePinning, ...] = PROBE_PINNINGS
    objective: Objective = "worst"
    seed: int = 1


@dataclass(frozen=True, slots=True)
class ProbePair:
    """Two workloads to be measured together on hosts of one kind and platform ("" = none is named).

    `pinning`: `same` = they have fewer pCPUs together than vCPUs, `different` = pCPUs of their own, `shared` = pCPUs
    that both may use and that are enough for both.
    """

    first: str
    second: str
    pinning: ProbePinning
    kind: HostKind
    platform: str


@dataclass(frozen=True, slots=True)
class ProbeTurn:
    """A decision that a measurement could turn: from which host to which, and how probably."""

    instance: str
    before: str
    after: str
    probability: float
    gain: float


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One pair to measure: on which `hosts` of the decisions it meets, what it could turn and gain beyond the steps
    before it (T/B of the worst-off, summed over decisions), and the time it adds."""

    pair: ProbePair
    hosts: tuple[str, ...]
    turns: tuple[ProbeTurn, ...]
    probability: float
    gain: float
    seconds: float
    cumulative_s: float


@dataclass(frozen=True, slots=True)
class ProbeDecision:
    """A decision: today's host, how probably full knowledge would choose otherwise, and the expected regret."""

    instance: str
    host: str
    probability_before: float
    probability_after: float
    regret_before: float
    regret_after: float


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What to measure next. `ended`: every choice is `settled`, the `budget` is spent, or there is `no gain` left."""

    request: ProbeRequest
    model_version: str
    model_origin: str
    degraded: bool
    run_s: float
    steps: tuple[ProbeStep, ...]
    decisions: tuple[ProbeDecision, ...]
    ended: Literal["settled", "budget", "no gain"]
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """What all steps take together."""
        return self.steps[-1].cumulative_s if self.steps else 0.0
