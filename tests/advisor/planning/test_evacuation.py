"""Evacuations replayed step by step: limits of concurrency, sizes and speeds hold at each moment, forwards and back.

The reference reads only what a plan says. It adds sizes up itself, and predicts each host by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from random import Random

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance, IsolationSettings, Pinning, PlanRequest, PlanStep, Scene
from advisor.placement.decision import answer_scene
from advisor.prediction.active import ActivePredictor
from models.physics.prior import PriorPredictor
from tests.advisor.planning.planning_asked import plan
from tests.advisor.planning.planning_cases import WORKLOADS, cloud, vm
from tests.examples import examples

KEEP = 0.7
PRIOR = ActivePredictor(PriorPredictor())
HOSTS = {
    name: Host(name, "kvm", 3, 4096.0, labels={"rack": rack} if rack else {})
    for name, rack in {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "lone": ""}.items()
}
Cloud = dict[str, dict[str, Instance]]  # residents by host and id


@dataclass(frozen=True, slots=True)
class Case:
    """A cloud whose sizes hold, and how its first hosts are to be emptied."""

    instances: tuple[Instance, ...]
    request: PlanRequest

    def start(self) -> Cloud:
        return {name: {one.id: one for one in self.instances if one.host == name} for name in HOSTS}


@st.composite
def evacuations(draw: st.DrawFn) -> Case:
    instances: list[Instance] = []
    free = dict.fromkeys(HOSTS, 4096.0)
    for number in range(draw(st.integers(2, 12))):
        size = draw(st.sampled_from([400.0, 900.0, 1900.0]))
        on = draw(st.sampled_from(["a1", "a1", "a2", *HOSTS]))
        if free[on] < size:
            continue
        free[on] -= size
        limit = draw(st.sampled_from([None, None, 0.5, 0.9]))
        kind = draw(st.sampled_from(["cpu", "web", "bulk"]))
        instances.append(vm(f"i{number}", kind, on=on, memory_mb=size, min_throughput_ratio=limit))
    request = PlanRequest(
        "evacuate",
        empty=draw(st.sampled_from([("a1",), ("a1", "a2")])),
        keep_ratio=KEEP,
        at_once=draw(st.integers(1, 5)),
        at_once_per_host=draw(st.integers(1, 3)),
        at_once_per_rack=draw(st.sampled_from([None, 1, 2])),
        time_limit_s=30.0,
    )
    return Case(tuple(instances), request)


@dataclass(frozen=True, slots=True)
class Replay:
    """A cloud while the steps of a plan are carried out."""

    request: PlanRequest
    now: Cloud
    random: Random
    known: dict[tuple[str, tuple[str, ...]], frozenset[str]] = field(default_factory=dict)

    def broken(self) -> set[str]:
        """Hosts that promise more than they have, and instances below their limits."""
        found: set[str] = set()
        for name, residents in self.now.items():
            host = HOSTS[name]
            if sum(one.memory_mb for one in residents.values()) > host.memory_mb:
                found.add(f"memory of {name}")
            if sum(one.vcpus for one in residents.values()) > host.pcpus * host.cpu_overcommit:
                found.add(f"vCPUs of {name}")
            key = name, tuple(sorted(residents))
            if key not in self.known:
                self.known[key] = below(host, list(residents.values()))
            found |= self.known[key]
        return found

    def carried_out(self, steps: Sequence[PlanStep]) -> Iterator[set[str]]:
        """What is broken at each moment; what runs together begins and ends in an order of its own."""
        for _, stage in groupby(steps, key=lambda step: step.stage):
            together = list(stage)
            events = [*range(len(together)), *range(len(together))]
            self.random.shuffle(events)
            under_way: set[int] = set()
            for at in events:
                step = together[at]
                assert step.action == "move" and step.host and step.source and step.settings is None
                if at not in under_way:
                    under_way.add(at)
                    arriving = replace(self.now[step.source][step.instance], host=step.host)
                    self.now[step.host][step.instance] = arriving
                else:
                    under_way.discard(at)
                    del self.now[step.source][step.instance]
                check_concurrency([together[number] for number in under_way], self.request)
                yield self.broken()


def below(host: Host, residents: Sequence[Instance]) -> frozenset[str]:
    """Who would be slower there than it accepts."""
    limits = {one.id: KEEP if one.min_throughput_ratio is None else one.min_throughput_ratio for one in residents}
    effects = answer_scene(PRIOR, Scene(host, tuple(residents)), WORKLOADS).effects if residents else ()
    return frozenset(one.instance for one in effects if one.throughput_ratio.expected < limits[one.instance] - 1e-6)


def check_concurrency(moves: Sequence[PlanStep], request: PlanRequest) -> None:
    ends = [{step.host or "", step.source or ""} for step in moves]
    racks = [{HOSTS[name].labels.get("rack") for name in pair} - {None} for pair in ends]
    assert len(moves) <= request.at_once
    assert max(Counter(name for pair in ends for name in pair).values(), default=0) <= request.at_once_per_host
    if request.at_once_per_rack is not None:
        assert max(Counter(rack for pair in racks for rack in pair).values(), default=0) <= request.at_once_per_rack


@given(evacuations(), st.integers(0, 2**32))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_at_no_moment_of_an_evacuation_or_of_its_undo_is_broken_what_holds_before_and_after(
    case: Case, seed: int
) -> None:
    answer = plan(cloud(*case.instances, hosts=tuple(HOSTS.values())), case.request)
    steps = [step for step in answer.steps if step.host is not None]
    replay = Replay(case.request, case.start(), Random(seed))
    at_the_start = replay.broken()
    moments = list(replay.carried_out(steps))
    allowed = at_the_start | replay.broken()
    assert all(moment <= allowed for moment in moments)
    if not answer.notes:
        refused = {step.instance for step in answer.steps if step.host is None}
        assert {one for name in case.request.empty for one in replay.now[name]} == refused
    event(f"{len({step.stage for step in steps})} stages")
    assert all(moment <= allowed for moment in replay.carried_out(answer.undo))
    assert replay.now == case.start()


def test_a_pinning_stays_with_the_host_that_is_emptied_and_comes_back_by_the_undo() -> None:
    pinned = Instance("p", vcpus=1, memory_mb=400.0, host="a1", settings=IsolationSettings(pinning=Pinning(((2,),))))
    hosts = (Host("a1", "kvm", 3, 4096.0), Host("b1", "kvm", 2, 4096.0))
    found = plan(cloud(pinned, hosts=hosts), PlanRequest("evacuate", empty=("a1",)))
    (step,), (back,) = found.steps, found.undo
    assert (step.host, step.settings) == ("b1", IsolationSettings())
    assert (back.host, back.settings) == ("a1", pinned.settings)
