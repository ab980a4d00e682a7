"""Instances that come: what was predicted before, here and elsewhere, and how each and its host fare with it.

What is stored of each is plain JSON, so that the store need not know its fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from advisor.domain import (
    AlternativeNow,
    Band,
    Growth,
    Host,
    Instance,
    PlacementRequest,
    PlacementWorth,
    Recommendation,
    WhyHost,
    unpinned,
)
from advisor.domain.plans import DAYS_A_MONTH
from advisor.lifecycle.window_checks import MeasuredWindow, platform_of
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.scheduling.rules import most_free
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.data.demand_classes import stem_of
from models.data.scene import build_batch
from models.evaluation.prediction_checks import CONTENDED

# What the model predicts now for a placement and for hosts where the instance is not, with the demand known by now.

_Scene = tuple[Host, tuple[Instance, ...]]
_Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Moved:
    """An instance that is on one host and might be on another: both without it, the other one with it."""

    instance: Instance
    here: _Scene
    there: _Scene

    @property
    def scenes(self) -> tuple[_Scene, ...]:
        coming = unpinned(self.instance)
        (here, staying), (there, others) = self.here, self.there
        return (here, staying), (here, (*staying, self.instance)), (there, others), (there, (*others, coming))


def with_alternatives(
    placements: Sequence[PlacementWorth], snapshot: ClusterSnapshot, chosen: ActivePredictor
) -> tuple[PlacementWorth, ...]:
    """The placements with the hosts of their answers and that where most was free, as predicted now, for instances that
    are still where they went."""
    moves = [(at, why, move) for at, placed in enumerate(placements) for why, move in _moves(placed, snapshot)]
    if not moves:
        return tuple(placements)
    scenes: dict[_Names, _Scene] = {_names(scene): scene for _, _, move in moves for scene in move.scenes}
    number = {names: at for at, names in enumerate(scenes)}
    batch = build_batch(list(scenes.values()), snapshot.scenes.table)
    predicted = active.ask(chosen, lambda answering: answering.predictor.predict(batch, ()).throughput.expected)
    scene_shares = np.minimum(np.asarray(predicted, dtype=float), 1.0)
    rows_of = [[number[_names(scene)] for scene in move.scenes] for _, _, move in moves]
    alternatives: dict[int, list[AlternativeNow]] = {}
    for (at, why, move), rows in zip(moves, scene_shares[np.array(rows_of)], strict=True):
        alternatives.setdefault(at, [_here(move, rows)]).append(_there(move, why, rows))
    return tuple(replace(placed, alternatives=tuple(alternatives.get(at, ()))) for at, placed in enumerate(placements))


def gained(placements: Sequence[PlacementWorth]) -> tuple[int, float, float, float, float] | None:
    """Of those that are not where most was free: how many, their mean share here and there, and that of all others;
    None where there is none such."""
    rows = []
    for placement in placements:
        freest = next((alternative for alternative in placement.alternatives if alternative.why == "most_free"), None)
        if placement.heeded == "followed" and freest is not None:
            rows.append((placement.alternatives[0].share, freest.share, freest.others_here, freest.others))
    if not rows:
        return None
    here, free, others_here, others = np.mean(rows, axis=0).tolist()
    return len(rows), here, free, others_here, others


def _moves(placement: PlacementWorth, snapshot: ClusterSnapshot) -> list[tuple[WhyHost, _Moved]]:
    instance = snapshot.names.placed.get(placement.instance)
    if instance is None or instance.host != placement.host or snapshot.index(placement.host) is None:
        return []
    why: dict[str, WhyHost] = dict.fromkeys(placement.shown, "answer")
    if placement.most_free is not None:
        why[placement.most_free] = "most_free"
    here = _without(snapshot, placement.host, placement.instance)
    resident = next(guest for guest in _residents(snapshot, placement.host) if guest.id == placement.instance)
    return [
        (reason, _Moved(resident, here, _without(snapshot, host, placement.instance)))
        for host, reason in why.items()
        if host != placement.host and snapshot.index(host) is not None
    ]


def _names(scene: _Scene) -> _Names:
    """Which instance is where; the same scene is predicted once."""
    return scene[0].id, *(instance.id for instance in scene[1])


def _residents(snapshot: ClusterSnapshot, host: str) -> tuple[Instance, ...]:
    at = snapshot.index(host)
    return () if at is None else tuple(snapshot.residents[at])


def _without(snapshot: ClusterSnapshot, host: str, instance: str) -> _Scene:
    others = tuple(other for other in _residents(snapshot, host) if other.id != instance)
    return snapshot.hosts[snapshot.index(host) or 0], others


def _here(move: _Moved, rows: Floats) -> AlternativeNow:
    count = len(move.here[1])
    others = float(rows[1, :count].mean()) if count else 1.0
    return AlternativeNow(move.here[0].id, "here", float(rows[1, count]), others, others)


def _there(move: _Moved, why: WhyHost, rows: Floats) -> AlternativeNow:
    staying, others = len(move.here[1]), len(move.there[1])
    moved = np.concatenate([rows[0, :staying], rows[3, :others]])
    as_it_is = np.concatenate([rows[1, :staying], rows[2, :others]])
    share = float(rows[3, others])
    if not len(moved):
        return AlternativeNow(move.there[0].id, why, share, 1.0, 1.0)
    return AlternativeNow(move.there[0].id, why, share, float(moved.mean()), float(as_it_is.mean()))


WATCHED_S = 7 * 86_400.0  # for so long it is looked at how one fares
ASKED_S = 86_400.0  # before it came: a question longer ago meant another placement
BACK_S = 3600.0  # one that is away for less has not left: an inventory may lack a host for a while


@dataclass(frozen=True, slots=True)
class PredictedOnArrival:
    """What is known when an instance comes. Instances that it is compared with have the same `like`.

    `band` is what was predicted for it where it is now, `residents` are those that were there before, each with its
    prediction; () = none was made. `advised` is the first host of the answer, `shown` are all of them, `most_free` is
    where Nova's weighers would have put it.
    """

    like: str
    residents: Mapping[str, tuple[float, ...]]
    band: tuple[float, ...] = ()
    advised: str | None = None
    shown: tuple[str, ...] = ()
    most_free: str | None = None
    asked_s: float | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> PredictedOnArrival:
        """From what `asdict` made, through JSON."""
        residents = {name: tuple(edges) for name, edges in stored["residents"].items()}
        return cls(**{**stored, "residents": residents, "band": tuple(stored["band"]), "shown": tuple(stored["shown"])})


@dataclass(slots=True)
class ShareSums:
    """Sums over windows: their number, the observed share, and where one was predicted the predicted share and whether
    the observed one lay in its range; the same of contended windows."""

    windows: int = 0
    observed: float = 0.0
    predicted_windows: int = 0
    predicted: float = 0.0
    inside: int = 0
    contended: int = 0
    contended_predicted: float = 0.0
    contended_observed: float = 0.0

    def add(self, observed: float, band: tuple[float, ...]) -> None:
        """Take one window of one instance."""
        self.windows += 1
        self.observed += observed
        predicted = min(band[0], 1.0) if band else 1.0
        if band:
            self.predicted_windows += 1
            self.predicted += predicted
            self.inside += band[1] <= observed <= band[2]
        if min(observed, predicted) < CONTENDED:
            self.contended += 1
            self.contended_observed += observed
            self.contended_predicted += predicted


@dataclass(slots=True)
class Fared:
    """How an instance fared so far, with its demand for CPUs (`demanded`, a sum over windows), and how the instances
    that were there before did."""

    new_vm: ShareSums = field(default_factory=ShareSums)
    residents: ShareSums = field(default_factory=ShareSums)
    demanded: float = 0.0

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Fared:
        """From what `asdict` made; nothing yet where there is none."""
        if stored is None:
            return cls()
        return cls(ShareSums(**stored["new_vm"]), ShareSums(**stored["residents"]), stored["demanded"])

    def add(self, instance: str, arrival: PredictedOnArrival, window: MeasuredWindow) -> None:
        """Take one window of its host; it counts where the share of the new VM says something."""
        if instance not in window.shares:
            return
        self.new_vm.add(window.shares[instance], arrival.band)
        self.demanded += window.demanded[instance]["cpu"]
        for name, band in arrival.residents.items():
            if name in window.shares:
                self.residents.add(window.shares[name], band)


def on_arrival(
    snapshot: ClusterSnapshot, instance: Instance, answer: Recommendation | None, fresh_s: float
) -> dict[str, Any]:
    """What is to be kept of one that is on its host in the snapshot, as plain JSON; `answer` None = no question was
    asked."""
    at = snapshot.index(instance.host or "")
    if at is None:
        raise ValueError(f"{instance.id} is on no host of the snapshot")
    others = {resident.id for resident in snapshot.residents[at]} - {instance.id}
    candidates = () if answer is None else answer.candidates
    candidate = next((candidate for candidate in candidates if candidate.host == instance.host), None)
    neighbours = () if candidate is None else candidate.neighbours
    edges = {effect.instance: _edges(effect.throughput_ratio) for effect in neighbours}
    request = PlacementRequest(instance) if answer is None else replace(answer.request, instance=instance)
    shown = tuple(candidate.host for candidate in candidates)
    arrival = PredictedOnArrival(
        like=_like(instance, snapshot, at),
        residents={name: edges.get(name, ()) for name in sorted(others & snapshot.names.placed.keys())},
        band=() if candidate is None else _edges(candidate.new_vm.throughput_ratio),
        advised=shown[0] if shown else None,
        shown=shown,
        most_free=most_free(snapshot, request, fresh_s=fresh_s),
        asked_s=None if answer is None else answer.created_at.timestamp(),
    )
    return asdict(arrival)


def _edges(band: Band) -> tuple[float, ...]:
    """As JSON can hold it: no edge is infinite."""
    return band.expected, band.lower, min(band.upper, 1e15)


def _like(instance: Instance, snapshot: ClusterSnapshot, at: int) -> str:
    """Size, class, and the kind of host, as one text: those that differ in any of them are not compared."""
    host, labels = snapshot.hosts[at], instance.labels
    flavor = labels.get("flavor_name") or labels.get("flavor") or ""
    kind = instance.workload or labels.get("class") or stem_of(instance) or flavor
    memory = round(math.log2(max(instance.memory_mb, 1.0)))
    return f"{instance.vcpus} vCPUs, 2^{memory} MB, {kind}, on {platform_of(host)} of {host.pcpus} CPUs"


# How a cloud grew lately, by what was seen of it: instances that came and went, and how the demand of those that
# stayed changed from one week to another.

LEAST_DAYS = 7.0  # of looking at which instances come and go
LEAST_PAIRS = 10  # instances that stayed
_NINETY = 1.645  # standard deviations of a normal distribution to each side of 90 % of it
_RESAMPLES = 400


@dataclass(frozen=True, slots=True)
class LoadTrend:
    """How the demand for CPUs of `instances` that stayed grew, % a month, with the edges of its 90 % range; the weeks
    that show it are `days` apart."""

    percent: float
    lower: float
    upper: float
    instances: int
    days: float

    @property
    def is_growth(self) -> bool:
        """Whether it is above 0 beyond doubt."""
        return self.lower > 0


def load_trend(weeks: Sequence[tuple[float, float]], days: float) -> LoadTrend | None:
    """By the mean demand of each instance in a former and a later week, `days` apart; None where that says too little.

    The range is that of a bootstrap over instances (Efron, Annals of Statistics 7, 1979).
    """
    if len(weeks) < LEAST_PAIRS or days <= 0:
        return None
    pairs = np.array(weeks, dtype=np.float64)
    if pairs[:, 0].sum() <= 0:
        return None
    chosen = np.random.default_rng(0).integers(len(pairs), size=(_RESAMPLES, len(pairs)))
    resampled = pairs[chosen].sum(axis=1)
    ratios = np.divide(resampled[:, 1], resampled[:, 0], out=np.ones(_RESAMPLES), where=resampled[:, 0] > 0)
    lower, upper = np.quantile(_monthly(ratios, days), (0.05, 0.95)).tolist()
    former, later = pairs.sum(axis=0).tolist()
    return LoadTrend(float(_monthly(np.array([later / former]), days)[0]), lower, upper, len(pairs), days)


def _monthly(ratios: Floats, days: float) -> Floats:
    return np.asarray(100.0 * (np.power(np.maximum(ratios, 1e-9), DAYS_A_MONTH / days) - 1.0))


def measured(came: int, went: int, days: float, load: LoadTrend | None) -> tuple[Growth | None, tuple[str, ...]]:
    """The growth to look ahead with, None = none was seen beyond doubt, and what was seen, in sentences.

    Comings and goings vary as independent events do (Poisson), so their difference has the variance of their sum.
    """
    notes: list[str] = []
    monthly = spread = 0.0
    if days >= LEAST_DAYS:
        scale = DAYS_A_MONTH / days
        monthly, spread = (came - went) * scale, _NINETY * math.sqrt(came + went) * scale
        notes.append(f"In the last {days:.0f} days {came:,} instances came and {went:,} went.")
    if load is not None:
        notes.append(
            f"The demand for CPUs of {load.instances:,} instances that stayed changed by {load.percent:+.1f} % a month "
            f"({load.lower:+.1f} to {load.upper:+.1f} %), as two weeks {load.days:.0f} days apart show."
        )
    instances = max(monthly, 0.0) if monthly >= 1 else 0.0
    percent = load.percent if load is not None and load.is_growth else 0.0
    if not instances and not percent:
        return None, tuple(notes)
    doubts = [spread / instances] if instances else []
    if percent and load is not None:
        doubts.append((load.upper - load.lower) / 2 / percent)
    growth = Growth(round(instances, 1), round(percent, 2), uncertain_percent=round(100 * min(max(doubts), 1.0)))
    notes.append(
        f"The months ahead take that as growth: {growth.instances_per_month:g} instances and "
        f"{growth.load_percent_per_month:g} % more load a month, uncertain by {growth.uncertain_percent:g} %."
    )
    return growth, tuple(notes)
