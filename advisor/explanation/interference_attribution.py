"""Interference attribution: each instance's predicted T/B as it is and without each of its strongest neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.pressure import pressure_of_each
from models.arrays import Floats, Ints
from models.data.scene import SceneBatch
from models.prediction import Predictor

MAX_HOSTS, MAX_RESIDENTS = 8, 12  # of a report
CELLS_AT_ONCE = 20_000  # instances in all scenes that are predicted together: about 60 MB
EVERY_PAIR = 20  # instances on a host up to which pairs are listed that lose as good as nothing
LEAST_LOSS = 0.005  # of a ratio: pairs of larger hosts that lose less are left out
MOST_CELLS = 40_000  # instances in all scenes of one host: of 200 on it every pair is examined


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
    snapshot: ClusterSnapshot, predictor: Predictor, hosts: Sequence[str]
) -> tuple[AttributedLoss, ...]:
    """The MAX_RESIDENTS most affected instances and the MAX_RESIDENTS strongest neighbours, in pairs, on each of these
    hosts, the first MAX_HOSTS of them with neighbours; in the given order."""
    positions = [place for name in hosts if (place := snapshot.index(name)) is not None]
    crowded = [place for place in positions if len(snapshot.residents[place]) > 1][:MAX_HOSTS]
    pairs: list[AttributedLoss] = []
    for place in crowded:
        scene = snapshot.scenes.take(np.array([place])).trimmed()
        ratios = predictor.predict(scene, ()).throughput.expected[0]
        chosen = np.sort(np.argsort(ratios, kind="stable")[:MAX_RESIDENTS])
        strongest = _strongest(scene, MAX_RESIDENTS)
        pairs += _pairs(snapshot, place, ratios, chosen, strongest, _without_each(scene, predictor, strongest))
    return tuple(pairs)


def on_host(snapshot: ClusterSnapshot, predictor: Predictor, place: int, ratios: Floats) -> tuple[AttributedLoss, ...]:
    """What each instance on the host at this position would gain without each of its strongest neighbours: all of them
    where MOST_CELLS allow it, else those that ask for most. On a host of more than EVERY_PAIR pairs with less than
    LEAST_LOSS are left out. `ratios` (N,) is what each has with all of them."""
    count = len(snapshot.residents[place])
    if count < 2:
        return ()
    scene = snapshot.scenes.take(np.array([place])).trimmed()
    strongest = _strongest(scene, max(MOST_CELLS // count, 1))
    least = LEAST_LOSS if count > EVERY_PAIR else 0.0
    without = _without_each(scene, predictor, strongest)
    return tuple(_pairs(snapshot, place, ratios, np.arange(count), strongest, without, least))


def _strongest(scene: SceneBatch, most: int) -> Ints:
    """The slots of the instances that ask for the largest part of any one resource, at most so many, in their order."""
    asked = np.nan_to_num(pressure_of_each(scene)[0]).max(axis=1)
    asked[~scene.present[0]] = -1.0
    strongest = np.argsort(-asked, kind="stable")[: min(most, int(scene.present.sum()))]
    return np.sort(strongest)


def _without_each(scene: SceneBatch, predictor: Predictor, absent: Ints) -> Floats:
    """Expected T/B of all without each of these slots, (A, N); only so many scenes at once as CELLS_AT_ONCE allow."""
    at_once = max(CELLS_AT_ONCE // scene.slots, 1)
    found = np.empty((len(absent), scene.slots))
    for first in range(0, len(absent), at_once):
        slots = absent[first : first + at_once]
        scenes = scene.take(np.zeros(len(slots), dtype=np.int64))
        present = scenes.present.copy()
        present[np.arange(len(slots)), slots] = False
        found[first : first + at_once] = predictor.predict(replace(scenes, present=present), ()).throughput.expected
    return found


def _pairs(
    snapshot: ClusterSnapshot,
    place: int,
    ratios: Floats,
    victims: Ints,
    absent: Ints,
    without: Floats,
    least: float = 0.0,
) -> list[AttributedLoss]:
    """The pairs of these victims and absent neighbours whose loss or gain is at least `least`."""
    host, there = snapshot.hosts[place].id, snapshot.residents[place]
    named = (np.abs(without[:, victims] - ratios[victims]) >= least) & (absent[:, None] != victims)
    return [
        AttributedLoss(
            host,
            there[victims[victim]].id,
            there[absent[row]].id,
            float(ratios[victims[victim]]),
            float(without[row, victims[victim]]),
        )
        for row, victim in np.argwhere(named).tolist()
    ]
