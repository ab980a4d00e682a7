"""Probes: what they found of hosts, instances and pairs, and which measurements would change a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from types import MappingProxyType
from typing import Annotated, Literal, get_args

from pydantic import Field, computed_field

from advisor.domain.effects import ModelOrigin, ModelVersion
from advisor.domain.plan_questions import Objective
from profiler.demand import Demand, Resource
from profiler.host_kinds import HostKind
from profiler.observed import (
    HELD_BACK,
    INCIDENTAL,
    OWN_END,
    PROBED_VALUES,
    SHORT_GAPS,
    STOLEN,
    Colocation,
    Instance,
    Outcome,
    ProbeResult,
    parse_cpus,
)

ProbePinning = Literal["same", "different", "shared"]
BUSY = 0.5  # tasks that ran or waited for each CPU in the minute before a probe: above, it measured what they left
PROBE_PINNINGS: tuple[ProbePinning, ...] = get_args(ProbePinning)


@dataclass(frozen=True, slots=True)
class PairValue:
    """What a probe without a far end shows of two instances where it runs inside of one of them: the name of its value,
    whether that is a time, of which less is better, and what it is alone (None = what was measured alone)."""

    name: str
    is_time: bool = False
    alone: float | None = None
    wants_cpu: bool = True  # it is one thread that always runs


PAIR_VALUES: Mapping[str, PairValue] = MappingProxyType(
    {
        "cpu-share": PairValue("share", alone=100.0),
        "cpu-work": PairValue("median", is_time=True),
        "disk": PairValue("write_sustained_mean", wants_cpu=False),
    }
)


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a probe found on a host, or inside of an instance there; `peer` is the host or instance at its far end, or,
    where the probe has none, the instance on the same host beside which it ran. `pair_fault` is why a result about two
    instances moves no answer as their host is now."""

    host: str
    result: ProbeResult
    taken_at: datetime
    instance: str = ""  # empty = the host itself
    peer: str = ""
    pair_fault: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What the newest one is kept of."""
        return self.host, self.instance, self.peer, self.result.probe

    @property
    def why_not_counted(self) -> str:
        """Why no answer counts with it; empty where those of a model do that learned from such results, or those about
        the two instances.

        A loop that does not get its CPU is what a probe of the CPU is there to find. The load of the machine shows
        whether other work took it.
        """
        if self.instance and not self.peer:
            return "it measures one instance, not what its host can do"
        if self.instance:
            return self._no_pair or self.pair_fault
        if not any(name.startswith(f"{self.result.probe}.") for name in PROBED_VALUES):
            return "no model learns from this probe"
        if self.peer == self.host or self.result.circumstances.get("peer", "").endswith(OWN_END):
            return "both of its ends were on this machine"
        for mark in self.result.marks:
            if not mark.startswith(HELD_BACK) and SHORT_GAPS not in mark:
                return "it is marked"
        return _other_work(self.result.circumstances)

    @property
    def is_of_pair(self) -> bool:
        """Whether it says what an instance reaches beside another one, if both are on the host."""
        return bool(self.instance and self.peer) and not self._no_pair

    @property
    def _no_pair(self) -> str:
        measure = PAIR_VALUES.get(self.result.probe)
        if measure is None:
            return "it measures the way to its far end, and not what another instance leaves"
        if self.peer == self.instance:
            return "an instance is no neighbour of its own"
        found = self.result.values.get(measure.name)
        if found is None or found.value < 0 or (measure.is_time and not found.value):
            return f"it has no {measure.name}"
        for mark in self.result.marks:
            if not mark.startswith(HELD_BACK) and SHORT_GAPS not in mark and STOLEN not in mark:
                return "it is marked"
        return ""


def pair_of(report: ProbeReport, residents: Sequence[Instance], alone: ProbeReport | None) -> Colocation | str:
    """A result about two instances (`is_of_pair`) as a co-location of everything on its host, else why it is none.

    `alone` is the newest result of the same probe inside of the instance without a peer. What the instance reached is
    relative to it, or to what a loop gets alone: a CPU, or as much of one as the instance's cap allows.
    """
    measure, there = PAIR_VALUES[report.result.probe], {one.id: one for one in residents}
    if report.instance not in there or report.peer not in there:
        return f"{report.instance} and {report.peer} are not both on {report.host}"
    solo, cap = measure.alone, there[report.instance].settings.cap_percent
    if solo is None:
        like = alone is not None and _usual(alone.result) == _usual(report.result)
        known = alone.result.values.get(measure.name) if alone and like else None
        if known is None or known.value <= 0:
            return f"there is no result of {report.instance} without a peer under the same circumstances"
        solo = known.value
    elif cap is not None:
        solo = min(solo, cap)
    found = report.result.values[measure.name]
    reached, unit = found.value, found.unit
    if measure.is_time:
        solo, reached, unit = 1 / solo, 1 / reached, f"1/{unit}"
    loop: dict[Resource, Demand] = {"cpu": Demand(1.0, common=0.0)} if measure.wants_cpu else {}
    inside = Instance(report.instance, demand=loop)  # what is not said of it is as the inventory has it
    key = "\n".join((report.host, report.instance, report.peer))
    return Colocation(
        f"probe:{report.result.probe}:{blake2b(key.encode(), digest_size=10).hexdigest()}",
        report.host,
        f"{report.taken_at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{found.value:.6g}",
        (
            Outcome(inside, "throughput", solo, reached, unit),
            *(Outcome(Instance(name), "throughput", None, None, unit) for name in there if name != report.instance),
        ),
        probe=report.result.probe,
    )


def _usual(result: ProbeResult) -> Mapping[str, str]:
    """The circumstances that two results must share to be compared."""
    return {name: text for name, text in result.circumstances.items() if name not in INCIDENTAL}


def _other_work(found: Mapping[str, str]) -> str:
    """That other work ran on the machine, by the load average of the minute before the probe; empty = not much."""
    try:
        load, cpus = float(found["load"].split()[0]), len(parse_cpus(found["cpus"]))
    except (KeyError, IndexError, ValueError):
        return ""  # it does not say
    return f"other work ran there: a load of {load:g} on {cpus} CPUs" if load > BUSY * cpus else ""


@dataclass(frozen=True, slots=True)
class Measuring:
    """How pairs are to be measured; a run takes `seconds_per_run` and what the lab needs around it."""

    budget_s: Annotated[float, Field(description="seconds that measuring may take")]
    seconds_per_run: Annotated[int, Field(description="measured seconds of a run")] = 20
    rounds: Annotated[int, Field(description="how often each pair is measured")] = 3
    pinnings: Annotated[tuple[ProbePinning, ...], Field(description="forms that can be measured")] = PROBE_PINNINGS
    objective: Annotated[Objective, Field(description="by which hosts are ranked")] = "worst"
    seed: Annotated[int, Field(description="of the simulation and of the campaign")] = 1


@dataclass(frozen=True, slots=True)
class ProbeRequest(Measuring):
    """Which measurements would change a decision? `instances` None = every one of the cloud, as if yet to be placed."""

    instances: tuple[Instance, ...] | None = None


@dataclass(frozen=True, slots=True)
class ProbePair:
    """Two workloads to be measured together on hosts of one kind and platform."""

    first: Annotated[str, Field(description="a workload")]
    second: Annotated[str, Field(description="the other workload")]
    pinning: Annotated[
        ProbePinning,
        Field(
            description="same: they have fewer pCPUs together than vCPUs; different: pCPUs of their own; shared: pCPUs "
            "that both may use and that are enough for both"
        ),
    ]
    kind: Annotated[HostKind, Field(description="kind of the hosts")]
    platform: Annotated[str, Field(description="platform of the hosts; empty = none is named")]


@dataclass(frozen=True, slots=True)
class ProbeTurn:
    """A decision that a measurement could turn."""

    instance: Annotated[str, Field(description="the instance that is placed")]
    before: Annotated[str, Field(description="its host as of today")]
    after: Annotated[str, Field(description="the host that it could turn to")]
    probability: Annotated[float, Field(description="how probably, 0-1")]
    gain: Annotated[float, Field(description="what that would gain, in relative throughput of the most affected")]


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One pair to measure."""

    pair: Annotated[ProbePair, Field(description="the pair")]
    hosts: Annotated[tuple[str, ...], Field(description="hosts of the decisions on which it meets")]
    turns: Annotated[tuple[ProbeTurn, ...], Field(description="decisions that it could turn")]
    probability: Annotated[float, Field(description="how probably it turns one that no step before it does, 0-1")]
    gain: Annotated[
        float,
        Field(
            description="what it gains beyond the steps before it: relative throughput of the most affected, summed "
            "over decisions"
        ),
    ]
    seconds: Annotated[float, Field(description="the time that it takes")]
    cumulative_s: Annotated[float, Field(description="with the steps before it")]


@dataclass(frozen=True, slots=True)
class ProbeDecision:
    """Where an instance would go, and how sure that is."""

    instance: Annotated[str, Field(description="the instance")]
    host: Annotated[str, Field(description="its host as of today")]
    probability_before: Annotated[
        float, Field(description="how probably full knowledge would choose another host, 0-1")
    ]
    probability_after: Annotated[float, Field(description="the same after the plan")]
    regret_before: Annotated[float, Field(description="expected regret, in relative throughput")]
    regret_after: Annotated[float, Field(description="the same after the plan")]


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """Which pairs to measure next."""

    request: Annotated[Measuring, Field(description="what was asked")]
    model_version: ModelVersion
    model_origin: ModelOrigin
    degraded: Annotated[bool, Field(description="true = the active model failed and the analytic model answered")]
    run_s: Annotated[float, Field(description="seconds that one run takes")]
    steps: Annotated[tuple[ProbeStep, ...], Field(description="pairs in the order in which to measure them")]
    decisions: Annotated[tuple[ProbeDecision, ...], Field(description="where instances would go, and how sure that is")]
    ended: Annotated[
        Literal["settled", "budget", "no gain"],
        Field(description="settled = every choice is sure; budget = it is spent; no gain = nothing is left"),
    ]
    notes: Annotated[tuple[str, ...], Field(description="what else to know")] = ()

    @computed_field(description="seconds that all steps take together")  # type: ignore[prop-decorator]
    @property
    def seconds(self) -> float:
        """What all steps take together."""
        return self.steps[-1].cumulative_s if self.steps else 0.0
