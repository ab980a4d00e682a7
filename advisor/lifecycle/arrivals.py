"""Instances that come: what was told before, whom each is like, and how it and its host fare window by window.

What is kept of each is plain JSON, so that the store need not know it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from advisor.domain import Band, Candidate, Instance, PlacementRequest, Recommendation
from advisor.lifecycle.window_checks import MeasuredWindow, platform_of
from advisor.scheduling.free_capacity import most_free
from advisor.snapshot import ClusterSnapshot
from models.data.demand_classes import stem_of
from models.evaluation.window_figures import CONTENDED

WATCHED_S = 7 * 86_400.0  # for so long it is looked at how one fares
ASKED_S = 86_400.0  # before it came: who asked longer ago meant another placement
BACK_S = 3600.0  # who is away for less has not left: an inventory may lack a host for a while


@dataclass(frozen=True, slots=True)
class ToldOnArrival:
    """What is known when one comes. `like` is what those must share with it whom it is compared with.

    `band` is what was told of it where it is now, `residents` those who were there before, each with what was told of
    it; None = nothing was, () the same. `advised` is the first host of the answer, `shown` are all of them, `most_free`
    is where Nova's weighers would have put it.
    """

    like: str
    residents: Mapping[str, tuple[float, ...]]
    band: tuple[float, ...] = ()
    advised: str | None = None
    shown: tuple[str, ...] = ()
    most_free: str | None = None
    asked_s: float | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ToldOnArrival:
        """From what `asdict` made, through JSON."""
        residents = {name: tuple(edges) for name, edges in told["residents"].items()}
        return cls(**{**told, "residents": residents, "band": tuple(told["band"]), "shown": tuple(told["shown"])})


@dataclass(slots=True)
class ShareSums:
    """Sums over windows: how many, the share observed, and where one was told the share told and whether the observed
    one lay in its range; the same of contended windows."""

    windows: int = 0
    observed: float = 0.0
    told_windows: int = 0
    told: float = 0.0
    inside: int = 0
    contended: int = 0
    contended_told: float = 0.0
    contended_observed: float = 0.0

    def add(self, observed: float, band: tuple[float, ...]) -> None:
        """Take one window of one instance."""
        self.windows += 1
        self.observed += observed
        told = min(band[0], 1.0) if band else 1.0
        if band:
            self.told_windows += 1
            self.told += told
            self.inside += band[1] <= observed <= band[2]
        if min(observed, told) < CONTENDED:
            self.contended += 1
            self.contended_observed += observed
            self.contended_told += told


@dataclass(slots=True)
class Fared:
    """How one fared so far: itself with the CPUs that it wanted (`wanted`, a sum over windows), and its residents."""

    newcomer: ShareSums = field(default_factory=ShareSums)
    residents: ShareSums = field(default_factory=ShareSums)
    wanted: float = 0.0

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None) -> Fared:
        """From what `asdict` made; nothing yet where there is none."""
        if kept is None:
            return cls()
        return cls(ShareSums(**kept["newcomer"]), ShareSums(**kept["residents"]), kept["wanted"])

    def add(self, instance: str, told: ToldOnArrival, window: MeasuredWindow) -> None:
        """Take one window of its host; it counts where the share of the newcomer says something."""
        if instance not in window.shares:
            return
        self.newcomer.add(window.shares[instance], told.band)
        self.wanted += window.wanted[instance]["cpu"]
        for name, band in told.residents.items():
            if name in window.shares:
                self.residents.add(window.shares[name], band)


def on_arrival(
    snapshot: ClusterSnapshot, instance: Instance, answer: Recommendation | None, fresh_s: float
) -> dict[str, Any]:
    """What is to be kept of one that is on its host in the snapshot, as plain JSON; `answer` None = nobody asked."""
    at = snapshot.index(instance.host or "")
    if at is None:
        raise ValueError(f"{instance.id} is on no host of the snapshot")
    there = [one.id for one in snapshot.residents[at] if one.id != instance.id and one.id in snapshot.names.placed]
    candidate = None if answer is None else _candidate_at(answer, instance.host or "")
    told = {} if candidate is None else {one.instance: _edges(one.throughput_ratio) for one in candidate.neighbours}
    request = PlacementRequest(instance) if answer is None else replace(answer.request, instance=instance)
    shown = () if answer is None else tuple(one.host for one in answer.candidates)
    kept = ToldOnArrival(
        like=_like(instance, snapshot, at),
        residents={name: told.get(name, ()) for name in there},
        band=() if candidate is None else _edges(candidate.newcomer.throughput_ratio),
        advised=shown[0] if shown else None,
        shown=shown,
        most_free=most_free(snapshot, request, fresh_s=fresh_s),
        asked_s=None if answer is None else answer.created_at.timestamp(),
    )
    return asdict(kept)


def _candidate_at(answer: Recommendation, host: str) -> Candidate | None:
    return next((one for one in answer.candidates if one.host == host), None)


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
