"""Who hurts whom: each instance's predicted T/B as it is, and with one of its neighbours gone; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.snapshot import ClusterSnapshot
from models.prediction import Predictor

MOST_HOSTS, MOST_RESIDENTS = 8, 12  # a scene per resident of each: about a hundred


@dataclass(frozen=True, slots=True)
class Harm:
    """What `neighbour` takes from `victim` on `host`: expected T/B as it is, and if the neighbour were not there.

    Without it everybody else asks for more, so what several neighbours take does not add up to the whole loss.
    """

    host: str
    victim: str
    neighbour: str
    ratio: float
    without: float

    @property
    def taken(self) -> float:
        """How much T/B the victim would have more; below 0 = it is better off with the neighbour."""
        return self.without - self.ratio


def who_hurts_whom(
    snapshot: ClusterSnapshot, predictor: Predictor, hosts: Sequence[str], most_residents: int | None = MOST_RESIDENTS
) -> tuple[Harm, ...]:
    """Every pair on these hosts, the first MOST_HOSTS of them, in two predict calls; hosts in the given order.

    Of a crowded host the `most_residents` that are worst off are victims and neighbours, None = all of them.
    """
    found = [place for name in hosts if (place := snapshot.index(name)) is not None]
    at = [place for place in found if len(snapshot.residents[place]) > 1][:MOST_HOSTS]
    if not at:
        return ()
    now = predictor.predict(snapshot.scenes.take(np.array(at)), ()).throughput.expected
    chosen = [
        sorted(np.argsort(now[row, : len(snapshot.residents[place])], kind="stable")[:most_residents].tolist())
        for row, place in enumerate(at)
    ]
    asked = [(row, slot) for row, slots in enumerate(chosen) for slot in slots]
    scenes = snapshot.scenes.take(np.array([at[row] for row, _ in asked]))
    present = scenes.present.copy()
    present[np.arange(len(asked)), [slot for _, slot in asked]] = False
    without = predictor.predict(replace(scenes, present=present), ()).throughput.expected
    pairs: list[Harm] = []
    for (row, gone), others in zip(asked, without.tolist(), strict=True):
        host, there, ratios = snapshot.hosts[at[row]].id, snapshot.residents[at[row]], now[row].tolist()
        pairs += [
            Harm(host, there[victim].id, there[gone].id, ratios[victim], others[victim])
            for victim in chosen[row]
            if victim != gone
        ]
    return tuple(pairs)
