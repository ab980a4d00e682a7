"""The cloud as it stands: what is predicted of every instance on every host, and of one host which instances slow
which by how much."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from advisor.domain import STOPPED_AT, CloudNow, HostDetail, HostNow, ResidentNow, Slowing, is_guessed
from advisor.errors import NotFound
from advisor.explanation import interference_attribution
from advisor.lifecycle import interval_inflation
from advisor.placement.candidates import scene_effects
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.serving.snapshot_cache import CloudView
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.pressure import pressure
from models.arrays import Floats
from models.physics.peak_demand import p95
from models.prediction import InterferencePrediction, Predictor

CELLS_AT_ONCE = 20_000  # instances of all hosts that are predicted together: about 60 MB
_NO_ROWS: Floats = np.zeros((0, 5))


class Overview:
    """Holds the last CloudNow and what was predicted of each situation in it; thread-safe.

    Hosts alike are predicted once, and after a change only those that were not there before it.
    """

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._making = threading.Lock()
        self._last: tuple[CloudView, ActivePredictor, CloudNow] | None = None
        self._known: dict[bytes, Floats] = {}
        self._version = ""

    def now(self, view: CloudView, chosen: ActivePredictor) -> CloudNow:
        """All instances in this view as this predictor sees them."""
        with self._making:
            last = self._last
            if last is None or last[0] is not view or last[1] is not chosen:
                last = self._last = view, chosen, self._make(view, chosen)
            return last[2]

    def _make(self, view: CloudView, chosen: ActivePredictor) -> CloudNow:
        snapshot = view.snapshot
        expected, version, origin, degraded = active.ask(
            chosen,
            lambda answering: (
                self._expected(snapshot, answering.predictor),
                answering.predictor.version,
                answering.predictor.origin,
                answering.degraded,
            ),
        )
        hosts = _hosts(snapshot, expected, {place.placed.id for place in view.pending})
        ordered = tuple(sorted(hosts, key=_badness))
        return CloudNow(ordered, view.counts.inventory, version, origin, degraded, self._fresh_s)

    def _expected(self, snapshot: ClusterSnapshot, predictor: Predictor) -> list[Floats]:
        """Of each instance of each host T/B, the part of the time in which it is short of CPU and in which its host is
        crowded, the share of CPU time delivered, nan = not known, and 1 where it falls behind; (N, 5) of the N on each.
        """
        rows_by_key = self._known if predictor.version == self._version else {}
        keys = snapshot.fingerprints.tolist()
        new = {key: at for at, key in enumerate(keys) if key not in rows_by_key and snapshot.residents[at]}
        if new:
            rows_by_key = {**rows_by_key, **_predicted(snapshot, new, predictor)}  # a view keeps them all
        self._known, self._version = {key: rows_by_key[key] for key in keys if key in rows_by_key}, predictor.version
        return [rows_by_key[key] if there else _NO_ROWS for key, there in zip(keys, snapshot.residents, strict=True)]


def _predicted(snapshot: ClusterSnapshot, new: Mapping[bytes, int], predictor: Predictor) -> dict[bytes, Floats]:
    """The rows of `Overview._expected` of the hosts at these positions, hosts of about one size together."""
    found: dict[bytes, Floats] = {}
    waiting = sorted(new, key=lambda key: -len(snapshot.residents[new[key]]))
    while waiting:
        at_once = max(CELLS_AT_ONCE // len(snapshot.residents[new[waiting[0]]]), 1)
        part, waiting = waiting[:at_once], waiting[at_once:]
        scenes = snapshot.scenes.take(np.array([new[key] for key in part], dtype=np.int64)).trimmed()
        rows = _now(predictor.predict(scenes, ()))
        found |= {key: row[: len(snapshot.residents[new[key]])].copy() for key, row in zip(part, rows, strict=True)}
    return found


def _now(prediction: InterferencePrediction) -> Floats:
    """The figures of S scenes as in `Overview._expected`, (S, N, 5)."""
    expected, pressure = prediction.throughput.expected, prediction.pressure
    unknown = np.full(expected.shape, np.nan)
    if pressure is None:
        return np.stack([expected, unknown, unknown, unknown, np.zeros(expected.shape)], axis=2)
    crowded = np.broadcast_to(pressure.crowded[:, None], expected.shape)
    return np.stack([expected, pressure.short, crowded, pressure.share, pressure.overloaded], axis=2)


def detail(view: CloudView, chosen: ActivePredictor, cloud: CloudNow, host_id: str) -> HostDetail:
    """One host more closely, `cloud` being of the same view; NotFound when there is no such host."""
    snapshot = view.snapshot
    position = snapshot.index(host_id)
    if position is None:
        raise NotFound(f"there is no host {host_id}")
    now = next(host for host in cloud.hosts if host.host.id == host_id)
    scene, residents = snapshot.scenes.take(np.array([position])).trimmed(), snapshot.residents[position]

    def ask(answering: ActivePredictor) -> HostDetail:
        predictor = answering.predictor
        names = [resident.id for resident in residents]
        predicted = predictor.predict(scene)
        effects = {effect.instance: effect for effect in scene_effects(predicted, names)}
        slowing = _slowing(snapshot, position, predictor, predicted.throughput.expected[0])
        in_order = tuple(effects[resident.instance.id] for resident in now.residents)
        return HostDetail(now, in_order, slowing, answering.degraded)

    return active.ask(chosen, ask)


def widened(shown: HostDetail, factors: interval_inflation.Factors) -> HostDetail:
    """The same with intervals as wide as observed outcomes show that they must be."""
    factor = factors.get(shown.now.host.id)
    return (
        shown
        if factor is None
        else replace(shown, effects=tuple(interval_inflation.effect(effect, factor) for effect in shown.effects))
    )


def _slowing(snapshot: ClusterSnapshot, position: int, predictor: Predictor, ratios: Floats) -> tuple[Slowing, ...]:
    """How much faster each running instance would be without each of its strongest neighbours, the largest loss
    first."""
    pairs = interference_attribution.on_host(snapshot, predictor, position, ratios)
    stopped = {resident.id for resident in snapshot.residents[position] if STOPPED_AT in resident.labels}
    losses = [
        Slowing(pair.victim, pair.neighbour, pair.taken)
        for pair in pairs
        if not {pair.victim, pair.neighbour} & stopped
    ]
    return tuple(sorted(losses, key=lambda loss: (-loss.loss, loss.victim, loss.neighbour)))


def _hosts(snapshot: ClusterSnapshot, expected: Sequence[Floats], coming: set[str]) -> list[HostNow]:
    pressure_by_host = pressure(snapshot)
    pending = coming - snapshot.names.placed.keys()
    hosts = []
    peaks = (p95(snapshot.demand_sums[:, 0]) / snapshot.scenes.used_cpus).tolist()
    for host, residents_there, row, age_s, patience_s, peak in zip(
        snapshot.hosts,
        snapshot.residents,
        (rows.tolist() for rows in expected),
        snapshot.age_s.tolist(),
        snapshot.names.patience.tolist(),
        peaks,
        strict=True,
    ):
        residents = [
            ResidentNow(
                resident,
                kept,
                resident.id in pending,
                _known(short),
                _known(delivered),
                falls_behind=behind > 0,
                guessed=is_guessed(resident, snapshot.names.profiled),
            )
            for resident, (kept, short, _, delivered, behind) in zip(residents_there, row, strict=True)
        ]
        crowded = _known(row[0][2]) if residents_there else 0.0
        residents.sort(key=lambda resident: (resident.expected, resident.instance.id))
        seen_at = None if age_s == float("inf") else snapshot.taken_at - timedelta(seconds=age_s)
        hosts.append(
            HostNow(host, tuple(residents), pressure_by_host[host.id], seen_at, crowded, peak, _known(patience_s))
        )
    return hosts


def _known(part: float) -> float | None:
    return None if math.isnan(part) else part


def _badness(now: HostNow) -> tuple[float, float, str]:
    worst = now.worst
    most = max((value for value in now.pressure.values() if value is not None), default=0.0)
    return (worst.expected if worst else float("inf"), -most, now.host.id)
