"""Clouds that are otherwise: imagined changes, instances placed beside others, and hosts that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain, combinations
from math import isfinite

import numpy as np

from advisor.domain import Host, Instance, Inventory, Pinning, Rejection, SpareCapacity, WhatIf, listed, unpinned
from advisor.planning.assignment import search_summary
from advisor.planning.assignment.local_search import SearchClock, insert_by_ejection, place_each
from advisor.planning.assignment.packing import pack
from advisor.planning.assignment.packing_problem import build_problem
from advisor.planning.assignment.search_state import PatternEvaluator, SearchState
from advisor.planning.plan_context import PlanContext
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot, promised_vcpus

# Imagined clouds: other hosts, overcommit or pinning than the current cloud.


def imagine(
    snapshot: ClusterSnapshot, what_if: WhatIf
) -> tuple[ClusterSnapshot, tuple[Instance, ...], tuple[str, ...]]:
    """The imagined cloud, the instances whose host is gone, and notes.

    An added host counts as seen now. Pins fit their host: with unchanged pinning, validation has rejected those beyond
    its pCPUs.
    """
    hosts = {host.id: host for host in snapshot.hosts} | {host.id: host for host in what_if.hosts}
    hosts = {name: _promising(host, what_if) for name, host in hosts.items() if name not in set(what_if.remove)}
    residents = [instance for residents_here in snapshot.residents for instance in residents_here]
    staying = [instance for instance in residents if instance.host in hosts]
    homeless = tuple(replace(unpinned(instance), host=None) for instance in residents if instance.host not in hosts)
    notes = []
    if what_if.pinning == "unpinned":
        staying = [_pinned(instance, None) for instance in staying]
    elif what_if.pinning == "own":
        staying, crowded = _with_own(hosts, staying)
        if crowded:
            notes.append(f"There are not enough pCPUs on {listed(crowded)}: instances there have none of their own.")
    if homeless:
        lose = "1 instance loses its" if len(homeless) == 1 else f"{len(homeless)} instances lose their"
        are = "is" if len(homeless) == 1 else "are"
        notes.append(f"{lose} host and {are} placed anew.")
    ages = dict(zip((host.id for host in snapshot.hosts), snapshot.age_s.tolist(), strict=True))
    ages |= {host.id: 0.0 for host in what_if.hosts}
    seen = {name: snapshot.taken_at - timedelta(seconds=age) for name, age in ages.items() if isfinite(age)}
    inventory = Inventory(tuple(hosts.values()), tuple(staying), snapshot.workloads)
    patience = dict(zip((host.id for host in snapshot.hosts), snapshot.names.patience.tolist(), strict=True))
    cloud = ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=snapshot.taken_at, patience=patience)
    return cloud, homeless, (*notes, *_beyond(snapshot, cloud))


def _beyond(now: ClusterSnapshot, then: ClusterSnapshot) -> Iterator[str]:
    """Notes about hosts on which remaining instances exceed the imagined room but not the current one."""
    was = {name: set(hosts) for name, hosts in _full(now)}
    for name, hosts in _full(then):
        new = [host for host in hosts if host not in was[name]]
        if new:
            yield f"The instances on {listed(new)} are promised more {name} than there would be."


def _full(cloud: ClusterSnapshot) -> Iterator[tuple[str, list[str]]]:
    """The overcommitted hosts of a cloud for each resource."""
    for name, used, room in (
        ("CPU", cloud.used_vcpus, cloud.room_vcpus),
        ("dedicated CPU", cloud.used_own, cloud.room_own),
        ("memory", cloud.used_memory_mb, cloud.room_memory_mb),
        ("disk", cloud.used_disk_gb, cloud.room_disk_gb),
    ):
        over = used > with_slack(room)
        yield name, [host.id for host, full in zip(cloud.hosts, over.tolist(), strict=True) if full]


def _promising(host: Host, what_if: WhatIf) -> Host:
    cpu, memory = what_if.cpu_overcommit, what_if.memory_overcommit
    return replace(
        host,
        cpu_overcommit=host.cpu_overcommit if cpu is None else cpu,
        memory_overcommit=host.memory_overcommit if memory is None else memory,
    )


def _pinned(instance: Instance, pinning: Pinning | None) -> Instance:
    return replace(instance, settings=replace(instance.settings, pinning=pinning))


def _with_own(hosts: Mapping[str, Host], staying: Sequence[Instance]) -> tuple[list[Instance], list[str]]:
    """Instances with pCPUs of their own beside those of the driver domain, by id; and the hosts with too few.

    Those with dedicated vCPUs have them without a pinning.
    """
    by_host: dict[str, list[Instance]] = {}
    for instance in sorted(staying, key=lambda instance: instance.id):
        by_host.setdefault(instance.host or "", []).append(instance)
    pinned: list[Instance] = []
    too_small: list[str] = []
    for name, residents in by_host.items():
        host = hosts[name]
        drivers = set(host.driver_cpus) if len(host.driver_cpus) < host.pcpus else set()
        free = [cpu for cpu in host.shared_cpus if cpu not in drivers]
        if sum(promised_vcpus(host, instance) for instance in residents) > len(free):
            too_small.append(name)
            pinned += [_pinned(instance, None) for instance in residents]
            continue
        cpus = iter(free)
        pinned += [
            _pinned(instance, Pinning(tuple((next(cpus),) for _ in range(instance.vcpus))))
            if not instance.dedicated_vcpus
            else instance
            for instance in residents
        ]
    return pinned, sorted(too_small)


# Places new VMs beside the residents without any move: fast, because any host will do.


@dataclass(frozen=True, slots=True)
class PlacedBeside:
    """The cloud with those that found a host, and by id why the others did not.

    `in_time` is False where an instance was refused because the time ended.
    """

    after: ClusterSnapshot
    refused: Mapping[str, tuple[Rejection, ...]]
    in_time: bool = True


def place_beside(
    context: PlanContext, snapshot: ClusterSnapshot, new_vms: Sequence[Instance], clock: SearchClock
) -> PlacedBeside:
    """Place new VMs in turn, else packed tightly, else where another new VM makes room.

    No instance falls below a limit, and residents stay where they are. Only whether a host is found matters, not which.
    """
    if not new_vms or not snapshot.hosts:
        return PlacedBeside(snapshot, {instance.id: () for instance in new_vms})
    goal = context.goal(snapshot, "admit", new_vms, clock.left_s)
    problem = build_problem(snapshot, goal, context.fresh_s)
    state = SearchState.of(PatternEvaluator.of(problem, context.chosen.predictor), "pack")
    random = np.random.default_rng(context.request.seed)
    if len(new_vms) > 1 and place_each(state, problem.waiting, random, clock) and not clock.over:
        state.place_all(problem.initial)
        unplaced = place_each(state, pack(state, problem.waiting, clock), random, clock)
        insert_by_ejection(state, unplaced, random, clock)
    elif len(new_vms) == 1:
        place_each(state, problem.waiting, random, clock)
    where, _ = search_summary.final_hosts(state)
    after = search_summary.apply_assignment(snapshot, {instance.id: instance for instance in new_vms}, where)
    in_time = None not in where.values() or not clock.over
    refused = search_summary.rejections(state, after, goal, where, context.fresh_s) if in_time else dict.fromkeys(
        (name for name, host in where.items() if host is None), ()
    )  # fmt: skip
    return PlacedBeside(after, refused, in_time)


MAX_FAILURES = 2_000  # sets of hosts that fail together: with more, each number would take minutes
Failure = tuple[str, ...]  # ids of the hosts that fail together
Filled = Callable[[int], ClusterSnapshot]  # the cloud with so many of the mix


def failures_of(snapshot: ClusterSnapshot, spare_hosts: int, spare_label: str | None) -> list[Failure]:
    """Every set of hosts that may fail together: so many at a time, or all of so many values of a label.

    Hosts without the label fail alone. An empty host that fails loses no instance, but others lose its room.
    """
    groups: dict[str, list[str]] = {}
    for host in snapshot.hosts:
        groups.setdefault(host.labels.get(spare_label or "", f" {host.id}"), []).append(host.id)
    together = combinations(groups.values(), min(spare_hosts, len(groups)))
    return [tuple(chain.from_iterable(several)) for several in together]


@dataclass(slots=True)
class FailoverSearch:
    """Looks for the largest number of the mix with which every failure is survived.

    `first` is the failure that was not survived last: it is tried first, because it likely is not survived again.
    """

    context: PlanContext
    clock: SearchClock
    filled: Filled
    first: Failure = ()

    def most(self, fit: int) -> SpareCapacity:
        """From 0 by bisection up to what fits without a reserve; a number counts only where all failures were tried."""
        best, too_many, reason, number = -1, fit + 1, "", 0
        while best + 1 < too_many and not self.clock.over:
            why = self._not_survived(self.filled(number))
            if why is None:
                break
            if why:
                too_many, reason = number, why
            else:
                best = number
            number = (best + too_many) // 2
        request = self.context.request
        reason = reason or ("no further instance fits at all" if best == fit else _LATE)
        return SpareCapacity(
            request.spare_hosts, request.spare_label, None if best < 0 else best, min(too_many, fit + 1), reason
        )

    def _not_survived(self, cloud: ClusterSnapshot) -> str | None:
        """What happens in a failure that is not survived, "" = all are; None where the time ended before that."""
        request = self.context.request
        failures = failures_of(cloud, request.spare_hosts, request.spare_label)
        for failure in sorted(failures, key=lambda hosts: hosts != self.first):
            if self.clock.over:
                return None
            homeless, unplaced = self._homeless(cloud, failure)
            if unplaced and self.clock.over:
                return None  # an instance that was not tried in time may still find a host
            if unplaced:
                self.first = failure
                names = " and ".join(failure[:3]) + (f" and {len(failure) - 3} more" if len(failure) > 3 else "")
                fail = "fails" if len(failure) == 1 else "fail"
                find = "finds" if unplaced == 1 else "find"
                return f"if {names} {fail}, {unplaced} of {homeless} instances {find} no other host"
        return ""

    def _homeless(self, cloud: ClusterSnapshot, failure: Failure) -> tuple[int, int]:
        """How many instances lose their hosts, and for how many of them no other host is found."""
        lost = sum(
            len(residents) for host, residents in zip(cloud.hosts, cloud.residents, strict=True) if host.id in failure
        )
        if not lost or len(failure) == len(cloud.hosts):
            return lost, lost
        left, homeless, _ = imagine(cloud, WhatIf(remove=failure))
        return len(homeless), len(place_beside(self.context, left, homeless, self.clock).refused)


_LATE = "the time limit was reached before all failures were tried"
