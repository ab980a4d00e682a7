"""The goal of an assignment and its result: the interface between the planner and the solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from advisor.domain import Band, Instance, IsolationSettings, Objective, Rejection
from advisor.domain.plans import Search
from advisor.snapshot import ClusterSnapshot

Aim = Literal["admit", "rebalance", "evacuate", "consolidate"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What an assignment should achieve for the whole cloud.

    `new_vms` are to be placed (admit). `movable` are ids of residents that may move, None = all whose pinning was not
    given by the caller. `targets` are the hosts that may be used, None = all, and `targets_of` those of single movers
    by id; `emptied` are those to be emptied (evacuate). `resting` are ids of residents that stay after a move;
    `leaving` of those that must leave their host (evacuate), and `soft_off` of those whose soft rules do not count.
    `keep_ratio` is the T/B that instances without a limit of their own must keep; `move_gain` the least that a move
    must gain beyond its cost (`move_value.gain`, `move_cost`), which it must pay within `pays_within_s`; moves use at
    most `host_mbit` of a host's network, None = as it says. After `time_limit_s` seconds the best assignment so far is
    answered.
    """

    aim: Aim
    new_vms: tuple[Instance, ...] = ()
    movable: frozenset[str] | None = None
    targets: frozenset[str] | None = None
    targets_of: Mapping[str, frozenset[str]] = field(default_factory=dict)
    emptied: frozenset[str] = frozenset()
    resting: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    soft_off: frozenset[str] = frozenset()
    objective: Objective = "worst"
    keep_ratio: float = 0.8
    max_moves: int | None = None
    move_gain: float = 0.02
    pays_within_s: float = 6 * 3600.0
    host_mbit: float | None = None
    time_limit_s: float = 30.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which instance goes where, and the cloud afterwards.

    `where` lists new VMs and movers only; None = no host takes it, and `refused` gives the reasons. `gains` is what
    each move of a rebalance gains beyond its cost (`move_value.gain`), with its interval. `settings` lists instances
    whose settings change. `after` is the cloud with everything carried out; `notes` say what limits the result.
    """

    where: Mapping[str, str | None]
    refused: Mapping[str, tuple[Rejection, ...]]
    gains: Mapping[str, Band]
    settings: Mapping[str, IsolationSettings]
    after: ClusterSnapshot
    search: Search
    notes: tuple[str, ...] = ()
