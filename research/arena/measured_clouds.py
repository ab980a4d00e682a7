"""Streams of arrivals, and a cloud of measured hosts that a policy fills."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from advisor.scheduling.scoring import KEPT
from research.arena.measured_hosts import MeasuredWorld, Situation

SLO = KEPT
PER_HOST = 1.5  # instances that arrive per host where a cloud is not filled


@dataclass(frozen=True, slots=True)
class ArrivalLoad:
    """What arrives in a cloud: instances per host."""

    name: str
    per_host: float

    def workloads(self, world: MeasuredWorld, hosts: int, seed: int) -> list[str]:
        """What arrives, all workloads equally likely."""
        return arrivals(world.workloads, round(self.per_host * hosts), seed)


PART, FULL = ArrivalLoad("1.5 per host", PER_HOST), ArrivalLoad("full", 2.0)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a new VM may choose from: by situation the lowest host in it, and how many hosts are in it; hosts that are
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


@dataclass(frozen=True, slots=True)
class FilledCloud:
    """A cloud after a stream: hosts by number."""

    hosts: tuple[Situation, ...]

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

    def offer(self, workload: str, keep: float) -> Offer:
        """The situations that an instance of the workload could come to, where every instance then keeps `keep`."""
        first = {}
        for situation, heap in self.lowest.items():
            after = self.world.after(situation, workload)
            if after is not None and min(self.world.ratios(after)) >= keep:
                while self.hosts[heap[0]] != situation:
                    heapq.heappop(heap)
                first[situation] = heap[0]
        return Offer(first, self.count)


def fill(
    world: MeasuredWorld,
    hosts: int,
    workloads: Sequence[str],
    policy: SituationPolicy,
    seed: int,
    *,
    keep: float = 0.0,
) -> FilledCloud:
    """Let a policy place a stream on empty hosts. Where no host is left that was measured with the new VM, and on
    which every instance keeps `keep` of its speed alone, one more host is opened, and counts."""
    cloud = _Cloud(world, [])
    for number in range(hosts):
        cloud.put(number, ())
    random = np.random.default_rng(seed)
    for workload in workloads:
        offer = cloud.offer(workload, keep)
        if offer.first:
            host = offer.first[policy.choose(offer, workload, random).situation]
        else:
            host = len(cloud.hosts)
            cloud.put(host, ())
        there = world.after(cloud.hosts[host], workload)
        assert there is not None, "that was never measured"
        cloud.put(host, there)
    return FilledCloud(tuple(cloud.hosts))


def gain(world: MeasuredWorld, situation: Situation, workload: str) -> float:
    """What the sum of measured T/B of all gains when the workload comes to a situation."""
    after = world.after(situation, workload)
    assert after is not None
    return sum(world.ratios(after)) - sum(world.ratios(situation))


def arrivals(workloads: Sequence[str], count: int, seed: int) -> list[str]:
    """Workloads of instances that come one after another, all equally likely."""
    return [str(one) for one in np.random.default_rng(seed).choice(workloads, count)]


def below(ratios: np.ndarray, slo: float) -> float:
    """Percent of instances below an SLO."""
    return float(100 * (ratios < slo).mean())
