"""Streams of arrivals and departures, and a cloud of measured hosts that a policy fills."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from research.benchmarks.clouds.worlds import MeasuredWorld, Situation

NOISE = 2.0  # a measured difference counts where it exceeds this many standard errors


@dataclass(frozen=True, slots=True)
class Event:
    """Instance `number` of a workload comes, or goes."""

    number: int
    workload: str
    comes: bool = True


@dataclass(frozen=True, slots=True)
class Offer:
    """What a newcomer may choose from: by situation the lowest host in it, and how many hosts are in it; hosts that are
    alike are alike. Every situation has room, and what it would come to was measured."""

    first: Mapping[Situation, int]
    count: Mapping[Situation, int]


@dataclass(frozen=True, slots=True)
class SituationChoice:
    """The chosen situation, and those that the policy considers equally good."""

    situation: Situation
    tied: frozenset[Situation] = frozenset()


class SituationPolicy(Protocol):
    """Who decides where an instance of a workload goes."""

    def choose(self, offer: Offer, workload: str, random: np.random.Generator) -> SituationChoice: ...


@dataclass(slots=True)
class Decisions:
    """How decisions between at least two different situations went: `regret` is the sum of T/B that the best of the
    situations would have gained more, `right` that none was better by more than the noise of the measurement,
    `right_with_ties` that one of those which the chooser held for as good was the best one."""

    made: int = 0
    regret: float = 0.0
    tied: int = 0
    right: int = 0
    right_with_ties: int = 0


@dataclass(frozen=True, slots=True)
class FilledCloud:
    """A cloud after a stream: hosts by number, how many were opened at any time, and the decisions."""

    hosts: tuple[Situation, ...]
    opened: int
    decisions: Decisions

    def ratios(self, world: MeasuredWorld) -> np.ndarray:
        """Measured T/B of every instance."""
        return np.array([ratio for situation in self.hosts for ratio in world.ratios(situation)])


@dataclass(slots=True)
class _Cloud:
    world: MeasuredWorld
    hosts: list[Situation]
    lowest: dict[Situation, list[int]] = field(default_factory=dict)  # heaps that may hold hosts which left meanwhile
    count: dict[Situation, int] = field(default_factory=dict)

    def put(self, host: int, situation: Situation) -> None:
        """Host `host`, new or not, comes to a situation."""
        if host == len(self.hosts):
            self.hosts.append(situation)
        else:
            self._leave(self.hosts[host])
            self.hosts[host] = situation
        heapq.heappush(self.lowest.setdefault(situation, []), host)
        self.count[situation] = self.count.get(situation, 0) + 1

    def _leave(self, situation: Situation) -> None:
        self.count[situation] -= 1
        if not self.count[situation]:
            del self.count[situation], self.lowest[situation]

    def offer(self, workload: str) -> Offer:
        """The situations that an instance of the workload could come to."""
        first = {}
        for situation, heap in self.lowest.items():
            if self.world.after(situation, workload) is not None:
                while self.hosts[heap[0]] != situation:
                    heapq.heappop(heap)
                first[situation] = heap[0]
        return Offer(first, self.count)


def fill(world: MeasuredWorld, hosts: int, events: Sequence[Event], policy: SituationPolicy, seed: int) -> FilledCloud:
    """Let a policy place a stream on empty hosts. Where no host is left that was measured with the newcomer, one more
    host is opened, and counts."""
    cloud = _Cloud(world, [])
    for number in range(hosts):
        cloud.put(number, ())
    random = np.random.default_rng(seed)
    decisions = Decisions()
    where: dict[int, int] = {}
    opened: set[int] = set()
    for event in events:
        if not event.comes:
            host = where.pop(event.number)
            left = world.without(cloud.hosts[host], event.workload)
            assert left is not None, "who remains was never measured"
            cloud.put(host, left)
            continue
        offer = cloud.offer(event.workload)
        if offer.first:
            choice = policy.choose(offer, event.workload, random)
            judge(world, offer, event.workload, choice, decisions)
            host = offer.first[choice.situation]
        else:
            host = len(cloud.hosts)
            cloud.put(host, ())
        there = world.after(cloud.hosts[host], event.workload)
        assert there is not None, "that was never measured"
        cloud.put(host, there)
        where[event.number] = host
        opened.add(host)
    return FilledCloud(tuple(cloud.hosts), len(opened), decisions)


def judge(world: MeasuredWorld, offer: Offer, workload: str, choice: SituationChoice, decisions: Decisions) -> None:
    """Hold one choice against what was measured of every situation that was offered."""
    if len(offer.first) < 2:
        return
    gains = {situation: gain(world, situation, workload) for situation in offer.first}
    best = max(gains, key=lambda situation: gains[situation])

    def as_good(situation: Situation) -> bool:
        noise = np.hypot(change_error(world, situation, workload), change_error(world, best, workload))
        return gains[best] - gains[situation] <= NOISE * float(noise)

    decisions.made += 1
    decisions.regret += gains[best] - gains[choice.situation]
    tied = choice.tied & offer.first.keys()
    decisions.tied += bool(tied)
    right = as_good(choice.situation)
    decisions.right += right
    decisions.right_with_ties += right or any(as_good(situation) for situation in tied)


def gain(world: MeasuredWorld, situation: Situation, workload: str) -> float:
    """What the sum of measured T/B of all gains when the workload comes to a situation."""
    after = world.after(situation, workload)
    assert after is not None
    return sum(world.ratios(after)) - sum(world.ratios(situation))


def change_error(world: MeasuredWorld, situation: Situation, workload: str) -> float:
    """Standard error of `gain`."""
    after = world.after(situation, workload)
    assert after is not None
    return float(np.hypot(world.error(after), world.error(situation)))


def arrivals(workloads: Sequence[str], count: int, seed: int) -> list[Event]:
    """Instances one after another, each of any workload alike."""
    random = np.random.default_rng(seed)
    return [Event(number, str(one)) for number, one in enumerate(random.choice(workloads, count))]


def churn(workloads: Sequence[str], count: int, turns: int, seed: int) -> list[Event]:
    """`count` arrivals, then in each turn one instance goes, whichever, and a new one comes."""
    random = np.random.default_rng(seed)
    events = arrivals(workloads, count, seed)
    there = list(events)
    for turn in range(turns):
        gone = there.pop(int(random.integers(len(there))))
        new = Event(count + turn, str(random.choice(workloads)))
        events += [Event(gone.number, gone.workload, comes=False), new]
        there.append(new)
    return events


def counts(hosts: Sequence[Situation]) -> dict[str, int]:
    """How many instances of each workload are on the hosts."""
    found: dict[str, int] = {}
    for situation in hosts:
        for workload in situation:
            found[workload] = found.get(workload, 0) + 1
    return found
