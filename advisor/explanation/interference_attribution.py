"""Interference attribution: each instance's predicted T/B as it is and without each of its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.snapshot import ClusterSnapshot
from models.prediction import Predictor

MAX_HOSTS, MAX_RESIDENTS = 8, 12  # a scene per resident of each: about a hundred


@dataclass(frozen=True, slots=True)
class AttributedLoss:
    """What `neighbour` costs `victim` on `host`: expected T/B as it is, and without the neighbour.

    Without the neighbour the others use more, so the losses by several neighbours do not add up to the whole loss.
    """

    host: str
    victim: str
    neighbour: str
    ratio: float
    without: float

    @property
    def taken(self) -> float:
        """The T/B that the victim would gain; negative if it is better off with the neighbour."""
        return self.without - self.ratio


def attribute_interference(
    snapshot: ClusterSnapshot, predictor: Predictor, hosts: Sequence[str], most_residents: int | None = MAX_RESIDENTS
) -> tuple[AttributedLoss, ...]:
    """Every pair on these hosts, the first MAX_HOSTS of them, in two predict calls; hosts in the given order.

    On a crowded host only the `most_residents` worst-off instances are examined, None = all.
    """
    positions = [place for name in hosts if (place := snapshot.index(name)) is not None]
    crowded = [place for place in positions if len(snapshot.residents[place]) > 1][:MAX_HOSTS]
    if not crowded:
        return ()
    ratios_now = predictor.predict(snapshot.scenes.take(np.array(crowded)), ()).throughput.expected
    chosen = [
        sorted(np.argsort(ratios_now[row, : len(snapshot.residents[place])], kind="stable")[:most_residents].tolist())
        for row, place in enumerate(crowded)
    ]
    removals = [(row, slot) for row, slots in enumerate(chosen) for slot in slots]
    scenes = snapshot.scenes.take(np.array([crowded[row] for row, _ in removals]))
    present = scenes.present.copy()
    present[np.arange(len(removals)), [slot for _, slot in removals]] = False
    without = predictor.predict(replace(scenes, present=present), ()).throughput.expected
    pairs: list[AttributedLoss] = []
    for (row, absent), others in zip(removals, without.tolist(), strict=True):
        host, residents, ratios = (
            snapshot.hosts[crowded[row]].id,
            snapshot.residents[crowded[row]],
            ratios_now[row].tolist(),
        )
        pairs += [
            AttributedLoss(host, residents[victim].id, residents[absent].id, ratios[victim], others[victim])
            for victim in chosen[row]
            if victim != absent
        ]
    return tuple(pairs)
