"""Instances that come: what was predicted before, what each is like, and how it and its host fare window by window.

What is stored of each is plain JSON, so that the store need not know its fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from advisor.domain import Band, Instance, PlacementRequest, Recommendation
from advisor.lifecycle.window_checks import MeasuredWindow, platform_of
from advisor.scheduling.rules import most_free
from advisor.snapshot import ClusterSnapshot
from models.data.demand_classes import stem_of
from models.evaluation.prediction_checks import CONTENDED

WATCHED_S = 7 * 86_400.0  # for so long it is looked at how one fares
ASKED_S = 86_400.0  # before it came: who asked longer ago meant another placement
BACK_S = 3600.0  # who is away for less has not left: an inventory may lack a host for a while


@dataclass(frozen=True, slots=True)
class PredictedOnArrival:
    """What is known when an instance comes. Instances that it is compared with have the same `like`.

    `band` is what was predicted for it where it is now, `residents` are those who were there before, each with its
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
    """Size, class, and the kind of host, as one text: who differs in any of them is not compared."""
    host, labels = snapshot.hosts[at], instance.labels
    flavor = labels.get("flavor_name") or labels.get("flavor") or ""
    kind = instance.workload or labels.get("class") or stem_of(instance) or flavor
    memory = round(math.log2(max(instance.memory_mb, 1.0)))
    return f"{instance.vcpus} vCPUs, 2^{memory} MB, {kind}, on {platform_of(host)} of {host.pcpus} CPUs"
