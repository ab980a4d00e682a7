"""CandidateArrays: the candidates of an answer as arrays, which is all that an explanation may look at."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.domain import Host, Instance, Objective
from advisor.scheduling.scoring import Scores
from models.arrays import Floats
from models.data.scene import SceneBatch, slot_values
from models.prediction import InterferencePrediction, Predictor

SETTINGS = ("cap", "weight", "net_mode", "net_rate", "net_ceil", "disk_limit")  # of a slot, beside its pinning


@dataclass(frozen=True, slots=True)
class CandidateArrays:
    """The K best candidates of an answer, best first, and at least the first two where there are two.

    `residents[k]` are who is on `hosts[k]`, each in slot `slots[k][i]` of scene k; the newcomer, as it was asked about,
    sits in the last slot under the settings chosen for it. `prediction` and `scores` are of `scenes`; `before` (K, N)
    is everybody's expected T/B without the newcomer, 1 for the newcomer. `beside` are the instances that the host must
    hold: nothing is said about what would be without them.
    """

    hosts: tuple[Host, ...]
    residents: tuple[tuple[Instance, ...], ...]
    slots: tuple[tuple[int, ...], ...]
    newcomer: Instance
    scenes: SceneBatch
    prediction: InterferencePrediction
    before: Floats
    scores: Scores
    objective: Objective
    predictor: Predictor
    beside: tuple[str, ...] = ()

    def involved(self, at: int) -> dict[int, Instance]:
        """Who is in which slot of scene `at`: the newcomer, then residents by id.

        Of equals the first one is named, so that what is said does not depend on what the newcomer is called.
        """
        there = sorted(zip(self.slots[at], self.residents[at], strict=True), key=lambda pair: pair[1].id)
        return {self.scenes.slots - 1: self.newcomer, **dict(there)}

    def ratio(self, at: int, slot: int) -> float:
        """The expected T/B that the answer gives."""
        return float(self.prediction.throughput.expected[at, slot])

    def kept(self, at: int, slot: int) -> float:
        """What the placement leaves of somebody's speed: expected T/B over that without the newcomer."""
        return self.ratio(at, slot) / float(self.before[at, slot])

    def known(self, at: int) -> dict[int, dict[str, float]]:
        """Cap, weight, network class and disk limit of everybody as far as they are known: without the ladder's."""
        width = self.scenes.driver_cpus.shape[1]
        found = {}
        for slot, one in self.involved(at).items():
            values = slot_values(one, 0, width, width)
            found[slot] = {name: float(values[name]) for name in SETTINGS}
        return found

    def changed(self, at: int) -> frozenset[int]:
        """The slots of those whom the ladder gives other settings than they are known to have."""
        return frozenset(
            slot
            for slot, values in self.known(at).items()
            if any(getattr(self.scenes, name)[at, slot] != value for name, value in values.items())
        )

    def worst_off(self, at: int) -> int:
        """The slot that keeps the least; of equals the first."""
        return min(self.involved(at), key=lambda slot: round(self.kept(at, slot), 9))
