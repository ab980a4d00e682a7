"""CandidateArrays: the candidates of an answer as arrays, the only input of an explanation."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.domain import Headroom, Host, Instance, Objective
from advisor.scheduling.scoring import Scores
from models.arrays import Floats
from models.data.scene import SceneBatch, setting_values
from models.prediction import InterferencePrediction, Predictor


@dataclass(frozen=True, slots=True)
class CandidateArrays:
    """The K best candidates of an answer, best first, and at least two where there are two.

    `residents[k]` are on `hosts[k]`, each in slot `slots[k][i]` of scene k; the new VM, as requested, is in the last
    slot with the settings chosen for it. `prediction` and `scores` belong to `scenes`; `before` (K, N) is expected T/B
    without the new VM, 1 for the new VM. `beside` are instances that must be on the host: counterfactuals never
    remove them. `headroom` is what would be left on each host, `reserved` what was taken off each
    score because others will want the place. `short_before` (K, N) is for which
    part of the time each was short of CPU without the new VM, None = not known. `home` is the host that it is on.
    """

    hosts: tuple[Host, ...]
    residents: tuple[tuple[Instance, ...], ...]
    slots: tuple[tuple[int, ...], ...]
    new_vm: Instance
    scenes: SceneBatch
    prediction: InterferencePrediction
    before: Floats
    scores: Scores
    objective: Objective
    predictor: Predictor
    beside: tuple[str, ...] = ()
    headroom: tuple[Headroom, ...] = ()
    reserved: tuple[float, ...] = ()
    short_before: Floats | None = None
    home: str | None = None

    def involved(self, at: int) -> dict[int, Instance]:
        """The instances of scene `at` by slot: the new VM, then residents by id.

        Of equals the first is named, so that the text does not depend on the new VM's name.
        """
        residents = sorted(zip(self.slots[at], self.residents[at], strict=True), key=lambda pair: pair[1].id)
        return {self.scenes.slots - 1: self.new_vm, **dict(residents)}

    def ratio(self, at: int, slot: int) -> float:
        """The expected T/B in the answer."""
        return float(self.prediction.throughput.expected[at, slot])

    def overloaded(self, at: int, slot: int) -> bool:
        """Whether more work arrives for an instance at its busy times than it is served then."""
        return self.prediction.pressure is not None and bool(self.prediction.pressure.overloaded[at, slot])

    def kept(self, at: int, slot: int) -> float:
        """Expected T/B over that without the new VM."""
        return self.ratio(at, slot) / float(self.before[at, slot])

    def known(self, at: int) -> dict[int, dict[str, float]]:
        """Known cap, weight, network class and disk limit of every instance, without those that mitigation sets."""
        return {
            slot: {name: float(value) for name, value in setting_values(instance).items()}
            for slot, instance in self.involved(at).items()
        }

    def changed(self, at: int) -> frozenset[int]:
        """The slots whose settings mitigation changes."""
        return frozenset(
            slot
            for slot, values in self.known(at).items()
            if any(getattr(self.scenes, name)[at, slot] != value for name, value in values.items())
        )

    def worst_off(self, at: int) -> int:
        """The slot that keeps least; of equals the first."""
        return min(self.involved(at), key=lambda slot: round(self.kept(at, slot), 9))
