"""Whose error is whose: what predictions do not know of two workloads, shared by every host where they meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.domain import ProbePair, ProbePinning
from models.arrays import Floats, Ints
from models.data.scene import SceneBatch
from profiler.host_kinds import HostKind


class Errors:
    """The errors that predictions share, numbered: one for each victim beside each neighbour, whatever the host."""

    def __init__(self, pinnings: Sequence[ProbePinning]) -> None:
        self._pinnings = frozenset(pinnings)
        self._numbers: dict[tuple[str, ...], int] = {}
        self._pair_of: list[int] = []
        self._pairs: dict[ProbePair, int] = {}
        self._hosts: list[set[str]] = []

    @property
    def pair_of(self) -> Ints:
        """Which pair's measurement reveals each error, -1 = none."""
        return np.array(self._pair_of, dtype=np.int64)

    @property
    def pairs(self) -> tuple[ProbePair, ...]:
        """All pairs that meet in some decision, by number."""
        return tuple(self._pairs)

    def hosts(self, pair: int) -> tuple[str, ...]:
        """Where a pair meets in some decision."""
        return tuple(sorted(self._hosts[pair]))

    def number(
        self, victim: str | None, neighbour: str | None, form: ProbePinning, where: tuple[HostKind, str, str]
    ) -> int:
        """The error of a victim's ratio beside a neighbour. `where` is kind, platform and id of the host.

        Who runs nothing that has a name cannot be measured, and its error is the host's own.
        """
        kind, platform, host = where
        if not victim or not neighbour:
            return self._numbered((victim or "", neighbour or "", form, kind, platform, host), -1)
        first, second = sorted((victim, neighbour))
        at = self._pairs.setdefault(ProbePair(first, second, form, kind, platform), len(self._pairs))
        if at == len(self._hosts):
            self._hosts.append(set())
        self._hosts[at].add(host)
        return self._numbered((victim, neighbour, form, kind, platform), at if form in self._pinnings else -1)

    def _numbered(self, key: tuple[str, ...], pair: int) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._pair_of)
            self._pair_of.append(pair)
        return self._numbers[key]


def form_of(scenes: SceneBatch, scene: int, one: int, other: int) -> ProbePinning:
    """How two instances of a scene share its CPUs."""
    mine, theirs = scenes.affinity[scene, one], scenes.affinity[scene, other]
    if not (mine & theirs).any():
        return "different"
    return "same" if (mine | theirs).sum() < scenes.vcpus[scene, [one, other]].sum() else "shared"


def weights_of(parts: Sequence[Mapping[int, float]]) -> tuple[Ints, Floats]:
    """The errors that any row has, (E,), and how each row is made of them, (R, E), with squares that sum to 1 or 0.

    `parts` say of each row how often it has which error. Errors are independent, and neighbours share a row's alike.
    """
    numbers = sorted({error for part in parts for error in part})
    column = {error: at for at, error in enumerate(numbers)}
    weights = np.zeros((len(parts), len(numbers)))
    for row, part in enumerate(parts):
        length = np.sqrt(sum(count**2 for count in part.values()))
        for error, count in part.items():
            weights[row, column[error]] = count / length
    return np.array(numbers, dtype=np.int64), weights
