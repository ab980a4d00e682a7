"""What a plan is to reach, and the assignment that reaches it: the words between the question and the solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.domain import Band, Instance, IsolationSettings, Objective, Rejection
from advisor.domain.plans import Search
from advisor.snapshot import ClusterSnapshot

Aim = Literal["admit", "rebalance", "evacuate", "consolidate"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What should become of the whole cloud.

    `newcomers` are those to be placed (admit). `movable` are the ids of residents that may move, None = everybody whose
    pinning the caller did not give; `targets` the hosts that may be used, None = all; `emptied` those to be emptied
    (evacuate). `keep_ratio` is the T/B that whoever has no limit of its own must keep, `move_gain` what a move must
    give the worst-off at least (T/B). After `time_limit_s` the best so far is answered.
    """

    aim: Aim
    newcomers: tuple[Instance, ...] = ()
    movable: frozenset[str] | None = None
    targets: frozenset[str] | None = None
    emptied: frozenset[str] = frozenset()
    objective: Objective = "worst"
    keep_ratio: float = 0.8
    max_moves: int | None = None
    move_gain: float = 0.05
    time_limit_s: float = 30.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who goes where, and what the cloud is then.

    `where` has newcomers and movers only, None = nobody can take it, and then `refused` says why. `gains` is what each
    move of a rebalance gives (`worth.gained`), with its interval. `settings` are those of newcomers and movers where
    they differ from what they have. `after` is the cloud with everything carried out; `notes` say what is in the way.
    """

    where: Mapping[str, str | None]
    refused: Mapping[str, tuple[Rejection, ...]]
    gains: Mapping[str, Band]
    settings: Mapping[str, IsolationSettings]
    after: ClusterSnapshot
    search: Search
    notes: tuple[str, ...] = ()
