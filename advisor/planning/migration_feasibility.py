"""Checks intermediate host states of a migration order: which limits each state violates, predicted once per state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.domain import Host, Instance
from advisor.domain.rules import NO_RULES, groups_above, rules_of, violations
from advisor.planning.cloud_evaluation import beyond_limits
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.layout import lay_out
from models.prediction import Predictor

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
