"""Shared prediction errors: the error for a victim beside a neighbour is the same on every host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.domain import ProbePair, ProbePinning
from models.arrays import Floats, Ints
from models.data.scene import SceneBatch
from profiler.host_kinds import HostKind


class SharedErrors:
    """The shared errors, numbered: one for each victim beside each neighbour, on whatever host."""

    def __init__(self, pinnings: Sequence[ProbePinning]) -> None:
        self._pinnings = frozenset(pinnings)
        self._numbers: dict[tuple[str, ...], int] = {}
        self._pair_of: list[int] = []
        self._pairs: dict[ProbePair, int] = {}
        self._hosts: list[set[str]] = []

    @property
    def pair_of(self) -> Ints:
        """The pair whose measurement reveals each error, -1 = none."""
        return np.array(self._pair_of, dtype=np.int64)

    @property
    def pairs(self) -> tuple[ProbePair, ...]:
        """All pairs that share a host in some decision, by number."""
        return tuple(self._pairs)

    def hosts(self, pair: int) -> tuple[str, ...]:
        """The hosts on which a pair occurs in some decision."""
        return tuple(sorted(self._hosts[pair]))

    def number(
        self, victim: str | None, neighbour: str | None, form: ProbePinning, where: tuple[HostKind, str, str]
    ) -> int:
        """The error number of a victim's ratio beside a neighbour; `where` is kind, platform and id of the host.

        A workload without a name cannot be measured, so its error belongs to the host.
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


def form_of(scenes: SceneBatch, scene: int, first: int, second: int) -> ProbePinning:
    """How two instances of a scene share its CPUs."""
    first_cpus, second_cpus = scenes.affinity[scene, first], scenes.affinity[scene, second]
    if not (first_cpus & second_cpus).any():
        return "different"
    return "same" if (first_cpus | second_cpus).sum() < scenes.vcpus[scene, [first, second]].sum() else "shared"


def weights_of(parts: Sequence[Mapping[int, float]]) -> tuple[Ints, Floats]:
    """The errors of all rows, (E,), and the weights of each row, (R, E), with squares that sum to 1 or 0.

    `parts` counts the errors of each row. Errors are independent, and neighbours weigh equally.
    """
    numbers = sorted({error for part in parts for error in part})
    column = {error: at for at, error in enumerate(numbers)}
    weights = np.zeros((len(parts), len(numbers)))
    for row, part in enumerate(parts):
        length = np.sqrt(sum(count**2 for count in part.values()))
        for error, count in part.items():
            weights[row, column[error]] = count / length
    return np.array(numbers, dtype=np.int64), weights
