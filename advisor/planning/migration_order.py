"""The order of migrations: which are possible at each moment, and stages in which no host is overfull on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations

import numpy as np

from advisor.domain import Band, Host, Instance, unpinned
from advisor.domain.rules import NO_RULES, groups_above, rules_of, violations
from advisor.planning.cloud_evaluation import beyond_limits
from advisor.planning.migration_time import MigrationLimits
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.layout import lay_out
from models.prediction import Predictor

# Checks intermediate host states of a migration order: which limits each state violates, predicted once per state.

RESOURCES = ("vCPUs", "memory", "disk", "driver domain", "dedicated CPUs")
STATES_PER_PREDICTION = 4096  # host states in one prediction
HostState = tuple[int, Sequence[Instance]]  # host position, and every instance there
_StateKey = tuple[int, frozenset[int]]
NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HostViolations:
    """The limits that a host state violates.

    `below` are ids of instances below a limit; `overcommitted` the promised amount of each of RESOURCES where it
    exceeds the room, else 0; `exclusive_shared` whether an instance that requires the host for itself is not alone;
    `groups` the anti-affinity groups of which several instances are there, and `broken` the other rules that do not
    hold there.
    """

    below: frozenset[str] = NO_NAMES
    overcommitted: tuple[float, ...] = (0.0,) * len(RESOURCES)
    exclusive_shared: bool = False
    groups: frozenset[str] = NO_NAMES
    broken: frozenset[str] = NO_NAMES


def allowed_violations(*states: HostViolations) -> HostViolations:
    """What a state may violate because one of these violates it too."""
    return HostViolations(
        frozenset().union(*(state.below for state in states)),
        tuple(max(sizes) for sizes in zip(*(state.overcommitted for state in states), strict=True)),
        any(state.exclusive_shared for state in states),
        frozenset().union(*(state.groups for state in states)),
        frozenset().union(*(state.broken for state in states)),
    )


def new_violation(state: HostViolations, allowed: HostViolations, everywhere: frozenset[str]) -> str:
    """The first violation that is neither `allowed` on the host nor, for instances, `everywhere`; "" = none."""
    for name, overcommitted, tolerated in zip(RESOURCES, state.overcommitted, allowed.overcommitted, strict=True):
        if overcommitted > with_slack(tolerated):
            return f"has no room for its {name} beside the other instances"
    if state.exclusive_shared and not allowed.exclusive_shared:
        return "hosts an instance that requires the host for itself"
    newly_shared = sorted(state.groups - allowed.groups)
    if newly_shared:
        return f"hosts another instance of the anti-affinity group {newly_shared[0]}"
    newly_broken = sorted(state.broken - allowed.broken)
    if newly_broken:
        return f"would break a rule ({newly_broken[0]})"
    newly_below = sorted(state.below - allowed.below - everywhere)
    if newly_below:
        return f"would take {newly_below[0]} below its limit"
    return ""


@dataclass(frozen=True, slots=True)
class FeasibilityChecker:
    """Checks host states by one predictor; `keep_ratio` applies to instances without a limit of their own.

    A state is identified by its host and the identity of its instances, which the checker keeps alive.
    """

    snapshot: ClusterSnapshot
    predictor: Predictor
    keep_ratio: float
    _known: dict[_StateKey, tuple[HostViolations, tuple[Instance, ...]]] = field(default_factory=dict)

    def of(self, states: Sequence[HostState]) -> list[HostViolations]:
        """The violations of each state; unknown states are predicted in one batch."""
        keys = [(host, frozenset(map(id, residents))) for host, residents in states]
        unknown_by_key = {key: state for key, state in zip(keys, states, strict=True) if key not in self._known}
        unknown = list(unknown_by_key.items())
        for first in range(0, len(unknown), STATES_PER_PREDICTION):
            batch = unknown[first : first + STATES_PER_PREDICTION]
            for (key, (_, residents)), found in zip(batch, self._predicted([state for _, state in batch]), strict=True):
                self._known[key] = found, tuple(residents)
        return [self._known[key][0] for key in keys]

    def _predicted(self, states: Sequence[HostState]) -> list[HostViolations]:
        scenes = self.snapshot.scenes
        hosts = [self.snapshot.hosts[host] for host, _ in states]
        rows = lay_out(hosts, [residents for _, residents in states], scenes.table, scenes.driver_cpus.shape[1])
        count = rows.scenes.present.sum(axis=1)
        below = np.zeros(rows.scenes.present.shape, dtype=bool)
        if count.any():
            latency_limited = bool(np.isfinite(rows.max_latency).any())
            targets = ("throughput", "latency") if latency_limited else ("throughput",)
            below = beyond_limits(rows, self.predictor.predict(rows.scenes, targets), self.keep_ratio)
        used = (
            rows.used_vcpus, rows.used_memory_mb, rows.used_disk_gb, rows.driver_asked.sum(axis=1), rows.used_own,
        )  # fmt: skip
        rooms = (
            rows.room_vcpus, rows.room_memory_mb, rows.room_disk_gb, rows.room_driver_cpus, rows.room_own,
        )  # fmt: skip
        promised, room = np.stack(used, axis=1), np.stack(rooms, axis=1)
        overcommitted = np.where(promised > with_slack(room), promised, 0.0)
        exclusive_shared = rows.exclusive & (count > 1)
        return [
            HostViolations(
                frozenset(rows.residents[row][slot].id for slot in np.flatnonzero(below[row]).tolist()),
                tuple(overcommitted[row].tolist()),
                bool(exclusive_shared[row]),
                frozenset(group for group, _, _ in groups_above(rows.residents[row])),
                _broken(hosts[row], rows.residents[row]),
            )
            for row in range(len(states))
        ]


def _broken(host: Host, residents: Sequence[Instance]) -> frozenset[str]:
    """The rules about places and counted things that do not hold on a host."""
    if not any(rules_of(one) != NO_RULES for one in residents if one.labels):
        return NO_NAMES
    return frozenset(found.what for found in violations(host, residents) if not found.what.startswith("apart "))


MAX_BYPASS_CANDIDATES = 24  # blocked moves for which an intermediate host is sought


@dataclass(frozen=True, slots=True)
class InstanceChange:
    """The change of one instance from `former` (None = new) to `then`, with its gain (T/B) and reason if known."""

    then: Instance
    former: Instance | None = None
    gain: Band | None = None
    why: str = ""

    @property
    def moves(self) -> bool:
        return self.former is not None and self.former.host != self.then.host


@dataclass(frozen=True, slots=True)
class ScheduledChange:
    """A change in a stage, counted from 0; `between` names the instance that an intermediate move makes room for."""

    stage: int
    change: InstanceChange
    between: str = ""


@dataclass(frozen=True, slots=True)
class MigrationOrder:
    """The changes in order, the obstacles of those that cannot be carried out, and the cloud afterwards."""

    scheduled: tuple[ScheduledChange, ...]
    stuck: Mapping[str, str]
    after: ClusterSnapshot

    def back(self) -> tuple[ScheduledChange, ...]:
        """The way back through the same states; a `former` of None means that the instance is removed."""
        undone = [step for step in reversed(self.scheduled) if step.change.former != step.change.then]
        stages = {stage: number for number, stage in enumerate(dict.fromkeys(step.stage for step in undone))}
        return tuple(replace(step, stage=stages[step.stage]) for step in undone)


@dataclass(slots=True)
class _MigrationScheduler:
    """The cloud during the migration: where each is `now`, by host position and id, and the changes `left`.

    `known_obstacles` caches the obstacle of each remaining change in the current state.
    """

    checker: FeasibilityChecker
    allowed: Sequence[HostViolations]
    below_before: frozenset[str]
    now: list[dict[str, Instance]]
    left: list[InstanceChange]
    bypassed: set[str] = field(default_factory=set)
    known_obstacles: dict[str, str] = field(default_factory=dict)

    def hosts(self, change: InstanceChange) -> tuple[int, ...]:
        """The positions of the hosts that a change touches, its target first."""
        positions = self.checker.snapshot.names.positions
        ends = [change.then] if change.former is None else [change.then, change.former]
        return tuple(dict.fromkeys(positions[instance.host or ""] for instance in ends))

    def states(self, change: InstanceChange) -> list[HostState]:
        """The states of these hosts after the change."""
        to, *source = self.hosts(change)
        name = change.then.id
        sources = [
            (host, tuple(instance for instance in self.now[host].values() if instance.id != name)) for host in source
        ]
        return [(to, tuple({**self.now[to], name: change.then}.values())), *sources]

    def obstacles(self, changes: Sequence[InstanceChange]) -> list[str]:
        """The obstacle of each change in the current state, "" = none."""
        states = [self.states(change) for change in changes]
        violations = iter(self.checker.of(list(chain.from_iterable(states))))
        texts = []
        for touched in states:
            broken = [
                (host, new_violation(next(violations), self.allowed[host], self.below_before)) for host, _ in touched
            ]
            texts.append(next((f"{self.checker.snapshot.hosts[host].id} {why}" for host, why in broken if why), ""))
        return texts

    def apply(self, change: InstanceChange) -> None:
        """Carry out a change."""
        to, *source = self.hosts(change)
        for host in source:
            del self.now[host][change.then.id]
        self.now[to][change.then.id] = change.then
        touched = {to, *source}
        for waiting in self.left:
            if not touched.isdisjoint(self.hosts(waiting)):
                self.known_obstacles.pop(waiting.then.id, None)

    def stage(self, limits: MigrationLimits) -> list[InstanceChange]:
        """The changes to carry out together now, whichever of them ends first.

        A choice that only sizes and limits allow is checked in every order in which its changes may end; where that
        breaks a limit, one of those that break it waits for a later stage, and others may take its place.
        """
        unchecked = [change for change in self.left if change.then.id not in self.known_obstacles]
        self.known_obstacles |= {
            change.then.id: why for change, why in zip(unchecked, self.obstacles(unchecked), strict=True)
        }
        possible = [change for change in self.left if not self.known_obstacles[change.then.id]]
        waiting: set[str] = set()
        while True:
            chosen = self._within(limits, [change for change in possible if change.then.id not in waiting])
            late = self._breaking(chosen)
            if not late:
                return chosen
            waiting |= late

    def _within(self, limits: MigrationLimits, changes: Sequence[InstanceChange]) -> list[InstanceChange]:
        """As many of these as may run together; one that changes settings or size has its hosts for itself."""
        chosen: list[InstanceChange] = []
        counts: Counter[object] = Counter()
        reserved: set[int] = set()
        for change in changes:
            hosts = self.hosts(change)
            alone = change.former is not None and not change.moves
            if not reserved.isdisjoint(hosts) or (alone and any(counts[host] for host in hosts)):
                continue
            takes = Counter[object](hosts)
            if change.moves:
                takes.update(["moves", *{("rack", self._rack(host, limits)) for host in hosts}])
            if any(counts[what] + 1 > limits.most(what) for what in takes):
                continue
            chosen.append(change)
            counts.update(takes)
            reserved.update(hosts if alone else ())
        return chosen

    def _rack(self, host: int, limits: MigrationLimits) -> str:
        return limits.rack(self.checker.snapshot.hosts[host])

    def _breaking(self, chosen: Sequence[InstanceChange]) -> set[str]:
        """Of each host on which some of these, carried out without the others, break a limit: the last of the fewest.

        Each is known to break none by itself. An instance counts on both hosts until it has arrived, so that a host may
        hold any part of one that comes beside any part of one that leaves; on the way back it holds the same sets.
        """
        by_host: dict[int, list[InstanceChange]] = {}
        for change in chosen:
            for host in self.hosts(change):
                by_host.setdefault(host, []).append(change)
        crowded = {host: changes for host, changes in by_host.items() if len(changes) > 1}
        parts = [
            (host, part)
            for host, changes in crowded.items()
            for size in range(2, len(changes) + 1)
            for part in combinations(changes, size)
        ]
        verdicts = self.checker.of([(host, self._with(host, part)) for host, part in parts])
        late: dict[int, str] = {}
        for (host, part), broken in zip(parts, verdicts, strict=True):
            if new_violation(broken, self.allowed[host], self.below_before):
                late.setdefault(host, part[-1].then.id)  # the fewest that break a limit come first
        return set(late.values())

    def _with(self, host: int, changes: Sequence[InstanceChange]) -> tuple[Instance, ...]:
        """All instances on a host after these changes."""
        there = dict(self.now[host])
        for change in changes:
            if self.hosts(change)[0] == host:
                there[change.then.id] = change.then
            else:
                del there[change.then.id]
        return tuple(there.values())

    def bypass(self, targets: Sequence[int]) -> tuple[InstanceChange, str] | None:
        """A move to an intermediate host that unblocks another change, and that instance's id; None = there is none.

        The smallest instance goes first because it is copied twice. Each instance is bypassed once at most, by a host
        of the same kind.
        """
        waiting = [
            (waiting_change, waiting_change.former)
            for waiting_change in self.left
            if waiting_change.moves and waiting_change.former and waiting_change.then.id not in self.bypassed
        ]
        waiting.sort(key=lambda pair: (pair[0].then.memory_mb, pair[0].then.id))
        for change, former in waiting[:MAX_BYPASS_CANDIDATES]:
            to, source = self.hosts(change)
            others = [
                waiting_change
                for waiting_change in self.left
                if waiting_change is not change and self.hosts(waiting_change)[0] == source
            ]
            if not others:
                continue
            hosts = self.checker.snapshot.hosts
            intermediate_hosts = [
                hosts[at].id for at in targets if at not in {source, to} and hosts[at].kind == hosts[source].kind
            ]
            candidates = [InstanceChange(replace(unpinned(former), host=name), former) for name in intermediate_hosts]
            for intermediate, reason in zip(candidates, self.obstacles(candidates), strict=True):
                if reason:
                    continue
                self.apply(intermediate)
                freed = [
                    waiting_change
                    for waiting_change, obstacle in zip(others, self.obstacles(others), strict=True)
                    if not obstacle
                ]
                self.apply(InstanceChange(former, intermediate.then))
                if freed:
                    return intermediate, freed[0].then.id
        return None

    def drop(self, done: Sequence[InstanceChange]) -> None:
        """Remove changes from those left."""
        ids = {change.then.id for change in done}
        self.left = [change for change in self.left if change.then.id not in ids]

    def continue_from(self, intermediate: InstanceChange) -> None:
        """The remaining change of a bypassed instance starts at its intermediate host."""
        self.bypassed.add(intermediate.then.id)
        self.left = [
            replace(change, former=intermediate.then) if change.then.id == intermediate.then.id else change
            for change in self.left
        ]


def schedule(
    start: ClusterSnapshot,
    changes: Sequence[InstanceChange],
    predictor: Predictor,
    *,
    keep_ratio: float,
    limits: MigrationLimits,
    between: Collection[str] | None = None,
    most_moves: int | None = None,
) -> MigrationOrder:
    """Order the changes of a cloud, one per instance, in stages.

    A stage starts when the previous one is done, and holds as many moves as `limits` allow. A moving instance counts on
    both hosts until it has arrived. At each moment, whichever change of a stage ends first, no limit is violated that
    holds at the start and at the end: sizes, exclusive hosts, anti-affinity groups, and predicted ratios. Changes
    that block each other go by an intermediate host among those in `between` (None = every enabled host) while
    there are at most `most_moves` moves in all (None = any number).
    """
    checker = FeasibilityChecker(start, predictor, keep_ratio)
    now = [{instance.id: instance for instance in residents} for residents in start.residents]
    scheduler = _MigrationScheduler(checker, *_allowed(checker, now, changes), now, _by_gain(changes))
    targets = [
        position
        for position, host in enumerate(start.hosts)
        if host.enabled and (between is None or host.id in between)
    ]
    scheduled: list[ScheduledChange] = []
    for number in range(2 * len(changes) + 1):
        changes_now = scheduler.stage(limits) if scheduler.left else []
        steps = [ScheduledChange(number, change) for change in changes_now]
        scheduler.drop(changes_now)
        if not changes_now:
            moves = sum(step.change.moves for step in scheduled) + sum(change.moves for change in scheduler.left)
            bypass = scheduler.bypass(targets) if most_moves is None or moves < most_moves else None
            if bypass is None:
                break
            steps = [ScheduledChange(number, *bypass)]
        for step in steps:
            scheduler.apply(step.change)
        if not changes_now:
            scheduler.continue_from(steps[0].change)
        scheduled += steps
    stuck = {
        change.then.id: why for change, why in zip(scheduler.left, scheduler.obstacles(scheduler.left), strict=True)
    }
    return MigrationOrder(tuple(scheduled), stuck, after_steps(start, scheduled))


def _by_gain(changes: Sequence[InstanceChange]) -> list[InstanceChange]:
    """The largest gain first; changes without a gain keep their order."""
    return sorted(changes, key=lambda change: -change.gain.expected if change.gain else 0.0)


def _allowed(
    checker: FeasibilityChecker, now: Sequence[Mapping[str, Instance]], changes: Sequence[InstanceChange]
) -> tuple[Sequence[HostViolations], frozenset[str]]:
    """What may be violated during the migration, as at its start or end: by host, and by instances anywhere."""
    final = _MigrationScheduler(checker, (), NO_NAMES, [dict(residents) for residents in now], [])
    for change in changes:
        final.apply(change)
    states = [(host, tuple(residents.values())) for cloud in (now, final.now) for host, residents in enumerate(cloud)]
    verdicts = checker.of(states)
    both = zip(verdicts[: len(now)], verdicts[len(now) :], strict=True)
    return [allowed_violations(*pair) for pair in both], NO_NAMES.union(*(violations.below for violations in verdicts))


def after_steps(start: ClusterSnapshot, scheduled: Sequence[ScheduledChange]) -> ClusterSnapshot:
    """The cloud after all steps."""
    last = {step.change.then.id: step.change.then for step in scheduled}
    if not last:
        return start
    return start.changed(instances=last, seen={}, pending=start.names.coming, taken_at=start.taken_at)
