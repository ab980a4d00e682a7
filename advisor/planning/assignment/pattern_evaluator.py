"""Effects: what the full model predicts for everybody on a host with given company, each such host asked once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.domain import Host, Instance
from advisor.planning.assignment.packing_problem import Kinds, PackingProblem
from advisor.rounding import SLACK
from advisor.scheduling.scoring import cautious_loss, harm
from advisor.snapshot.rows import HOST_FIELDS, SLOT_FIELDS
from models.arrays import Floats, Ints
from models.data.scene import SceneBatch, build_batch
from models.prediction import Predictor

Where = tuple[int, Kinds]  # a class of hosts, and everybody there

AT_ONCE = 4096  # scenes in one prediction: what the arrays of a larger one take is memory, not time saved
SAME = 1e-9  # ratios that differ by less are the same


@dataclass(frozen=True, slots=True)
class Pattern:
    """A host of a class with everybody on it, `kinds` in order: expected T/B and half widths of the intervals of each.

    `below` are those under their limit, with their T/B. Risk-averse as the ranking is, by CAUTION half widths: `most`
    is what the most harmed loses, `lost` what all lose together, `harm` the most harmed's loss and a tenth of the
    others'. Losses are of the speed alone, below 0 for who gains.
    """

    kinds: Kinds
    ratios: tuple[float, ...] = ()
    halves: tuple[float, ...] = ()
    below: tuple[tuple[int, float], ...] = ()
    most: float = 0.0
    lost: float = 0.0
    harm: float = 0.0

    @property
    def worst(self) -> tuple[float, float]:
        """Expected T/B of the worst-off and the half width of its interval; 1 and 0 where nobody is."""
        return min(zip(self.ratios, self.halves, strict=True), default=(1.0, 0.0))


@dataclass(frozen=True, slots=True)
class PatternEvaluator:
    """Columns of one ground by one predictor; latency is asked only where somebody minds it."""

    ground: PackingProblem
    predictor: Predictor
    _scenes: tuple[SceneBatch, SceneBatch, dict[tuple[int, str], int]]
    _known: dict[Where, Pattern] = field(default_factory=dict)

    @classmethod
    def of(cls, ground: PackingProblem, predictor: Predictor) -> PatternEvaluator:
        """Nothing is asked yet. The ground has a host."""
        found = cls(ground, predictor, _one_slot_scenes(ground))
        found._known.update({(number, ()): Pattern(()) for number in range(len(ground.classes))})
        return found

    def at(self, host: int, movers: Kinds) -> Pattern:
        """The column of a host with these beside who must stay."""
        return self._known[self.key(host, movers)]

    def key(self, host: int, movers: Kinds) -> Where:
        """Under which a host with these beside who must stay is known."""
        return int(self.ground.of_class[host]), tuple(sorted((*self.ground.fixed[host], *movers)))

    def ask(self, wanted: Iterable[tuple[int, Kinds]]) -> None:
        """Predict what is not known of hosts with these movers, together."""
        self.ask_keys(self.key(host, movers) for host, movers in wanted)

    def pairs(self, family: Ints, families: int) -> Floats:
        """What two of each pair of families lose together on the most common class of hosts, one of each standing for
        all of its family; (F, F). It orders questions and answers none."""
        if not families:
            return np.zeros((1, 1))
        one_of = [int(np.flatnonzero(family == number)[0]) for number in range(families)]
        common = int(np.bincount(self.ground.of_class).argmax())
        keys = {(a, b): (common, tuple(sorted((one_of[a], one_of[b])))) for a in range(families) for b in range(a + 1)}
        self.ask_keys(keys.values())
        found = np.zeros((families, families))
        for (a, b), key in keys.items():
            found[a, b] = found[b, a] = self.known(*key).lost
        return found

    def known(self, of_class: int, kinds: Kinds) -> Pattern:
        """What was asked about a class of hosts with these, and nobody else, on it."""
        return self._known[of_class, kinds]

    def ask_keys(self, keys: Iterable[Where]) -> None:
        """Predict what is not known of these, together."""
        new = dict.fromkeys(key for key in keys if key not in self._known)
        by_size = sorted(new, key=lambda key: len(key[1]))  # empty slots are paid for
        for first in range(0, len(by_size), AT_ONCE):
            self._predict(by_size[first : first + AT_ONCE])

    def _predict(self, wanted: Sequence[Where]) -> None:
        scenes, kind, of_class = self._laid_out(wanted)
        ground, here = self.ground, scenes.present
        minds = np.isfinite(ground.latency[kind]) & here
        prediction = self.predictor.predict(scenes, ("throughput", "latency") if minds.any() else ("throughput",))
        expected = np.where(here, prediction.throughput.expected, 1.0)
        half = np.where(here, expected - prediction.throughput.lower, 0.0)
        below = here & (expected < ground.limit[of_class[:, None], kind] - SLACK)
        if minds.any():
            below |= minds & (prediction.latency.expected > ground.latency[kind] + SLACK)
        loss = np.where(here, cautious_loss(expected, half), 0.0)
        lost = loss.sum(axis=1)
        most = np.where(here.any(axis=1), np.where(here, loss, -np.inf).max(axis=1), 0.0)
        harmed = harm(most, lost)
        for row, key in enumerate(wanted):
            count = len(key[1])
            under = np.flatnonzero(below[row, :count]) if below[row].any() else ()
            self._known[key] = Pattern(
                kinds=key[1],
                ratios=tuple(expected[row, :count].tolist()),
                halves=tuple(half[row, :count].tolist()),
                below=tuple((key[1][slot], float(expected[row, slot])) for slot in under),
                most=float(most[row]),
                lost=float(lost[row]),
                harm=float(harmed[row]),
            )

    def _laid_out(self, wanted: Sequence[Where]) -> tuple[SceneBatch, Ints, Ints]:
        """Scenes of these columns, the kind in each slot, -1 = nobody, and the class of each column's host."""
        empty, slots, places = self._scenes
        ground = self.ground
        width = max(len(kinds) for _, kinds in wanted)
        kind = np.array([(*kinds, *(-1,) * (width - len(kinds))) for _, kinds in wanted], dtype=np.int64)
        of_class = np.array([number for number, _ in wanted], dtype=np.int64)
        place = np.array([places[host.pcpus, host.platform] for host in ground.classes], dtype=np.int64)
        nobody = len(slots) - 2
        scene = np.where(kind >= 0, place[of_class][:, None] * len(ground.kinds) + kind, nobody)
        return (
            SceneBatch(
                table=ground.table,
                **{name: getattr(empty, name)[of_class] for name in HOST_FIELDS},
                **{name: getattr(slots, name)[scene, 0] for name in SLOT_FIELDS},
            ),
            kind,
            of_class,
        )


def _one_slot_scenes(ground: PackingProblem) -> tuple[SceneBatch, SceneBatch, dict[tuple[int, str], int]]:
    """Every class of host empty, (C,), and every kind alone on every (pCPUs, platform), (Q * K + 1,), the last of them
    without anybody; and the number q of each (pCPUs, platform). Where a kind is pinned beyond a host's pCPUs its place
    is empty, as no filter lets it in there."""
    places: dict[tuple[int, str], int] = {}
    for host in ground.classes:
        places.setdefault((host.pcpus, host.platform), len(places))
    width = max(host.pcpus for host in ground.classes)
    wide = Host("wide", "lxc", pcpus=width, memory_mb=1.0)
    scenes: list[tuple[Host, tuple[Instance, ...]]] = []
    for pcpus, platform in places:
        there = Host("any", "kvm", pcpus=pcpus, memory_mb=1.0, platform=platform)
        for one in ground.kinds:
            pinning = one.settings.pinning
            beyond = pinning is not None and max(pinning.union, default=0) >= pcpus
            scenes.append((there, () if beyond else (one,)))
    slots = build_batch([*scenes, (wide, ()), (wide, (Instance("any"),))], ground.table)
    empty = build_batch([*((host, ()) for host in ground.classes), (wide, (Instance("any"),))], ground.table)
    return empty, slots, places
