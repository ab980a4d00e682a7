"""The cloud and the service as they stand: what is predicted of every instance, what a check-up finds, and vitals."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
from sqlalchemy import Connection

from advisor.domain import (
    EVIDENCE_LEVELS,
    LOW_SCORE,
    NOTICED_PERCENT,
    STOPPED_AT,
    CloudNow,
    CloudScores,
    Host,
    HostDetail,
    HostMemory,
    HostNow,
    ResidentNow,
    Slowing,
    evidence_counts,
    is_guessed,
)
from advisor.domain.checkup import LOW_DELIVERY, Checkup, Delivered, MemoryHere, OwnLoad, worst_first
from advisor.errors import NotFound, SeriesUnavailable
from advisor.explanation import comparison
from advisor.inventories.announced import DISAGREEMENT, LEFT_OUT
from advisor.lifecycle import monitoring
from advisor.placement.candidates import scene_effects
from advisor.planning.repair import every_violation
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.serving.snapshot_cache import CloudView
from advisor.settings import Settings
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.pressure import pressure
from advisor.store.sample_store import STORED, SampleStore
from advisor.telemetry import host_reports
from advisor.telemetry.demands import held_back
from models.arrays import Floats
from models.physics.peak_demand import p95
from models.prediction import InterferencePrediction, Predictor

# Takes a check-up of the cloud: what is wrong by what was measured, not only by what was predicted.

HOUR_S = 3600.0
STOPPED_S = 900.0  # without measurements, though it is reported: three windows of five minutes
LEAST_OWN_CPUS, LEAST_OWN_PART = 1.0, 0.1  # CPUs, and of a host's CPUs: its own work is reported from there on
LEAST_HELD_BACK = 5.0  # % of one CPU: who waits for less has no more to gain, whatever its share


def take_checkup(
    connection: Connection,
    view: CloudView,
    scored: CloudScores,
    settings: Settings,
    *,
    degraded: bool,
    now: datetime,
    samples: SampleStore = STORED,
) -> Checkup:
    """The check-up of a view at `now`, by the samples that are stored; `scored` are its scores."""
    snapshot = view.snapshot
    silent = {
        host.id for host, quiet in zip(snapshot.hosts, snapshot.is_silent(settings.fresh_s), strict=True) if quiet
    }
    elsewhere = settings.only_scraped
    measured: Mapping[tuple[str, str], Mapping[str, float]] = {}
    if not elsewhere:
        try:
            measured = samples.run_and_wait(connection, now.timestamp() - HOUR_S, now.timestamp())
        except SeriesUnavailable:
            elsewhere = True
    last_s = {} if elsewhere else samples.last_measured(connection)
    running = {instance.id: instance.host for instance in view.inventory.instances}
    shares = _shares(measured, running)
    others = [] if elsewhere else [host.id for host in view.inventory.hosts if host.id not in silent]
    old_s = now.timestamp() - STOPPED_S
    return Checkup(
        hosts=len(view.inventory.hosts),
        instances=len(view.inventory.instances),
        measured_instances=len(shares),
        alarms=view.alarms,
        silent=tuple(sorted(silent)),
        unmeasured=tuple(name for name in others if name not in last_s),
        stopped=tuple(name for name in others if name in last_s and last_s[name] < old_s),
        low_scores=tuple(
            of
            for of in scored.lowest(scored.cloud.instances, LOW_SCORE)
            if of.source == "measured" and not _hardly_waits(shares.get(of.instance))
        ),
        memory=_short(host_reports.measured_memory(connection, now.timestamp())),
        starved=worst_first([one for one, starved in shares.values() if starved]),
        disagreements=_by_host(view.inventory.hosts, DISAGREEMENT),
        malformed=_by_host(view.inventory.hosts, LEFT_OUT),
        own_load=tuple(
            OwnLoad(host.id, host.own_cpus, host.pcpus)
            for host in snapshot.hosts
            if host.own_cpus >= max(LEAST_OWN_CPUS, LEAST_OWN_PART * host.pcpus)
        ),
        broken=tuple(violation.text for violation in every_violation(snapshot)),
        degraded=degraded,
        elsewhere=elsewhere,
    )


def _hardly_waits(delivered: tuple[Delivered, bool] | None) -> bool:
    """Whether a low CPU share is of an instance that asks for next to nothing, and so is held back by next to
    nothing."""
    return delivered is not None and delivered[0].share < LOW_DELIVERY and not delivered[1]


def _short(found: Mapping[str, HostMemory]) -> tuple[MemoryHere, ...]:
    """Hosts that stall for memory noticeably, or swap, the longest stalls first."""
    pressed = {
        host: state for host, state in found.items() if state.swaps or (state.stalled or 0.0) >= 5 * NOTICED_PERCENT
    }
    ranked = sorted(pressed.items(), key=lambda item: (-(item[1].stalled or 0.0), item[0]))
    return tuple(MemoryHere(host, state) for host, state in ranked)


def _shares(
    measured: Mapping[tuple[str, str], Mapping[str, float]], running: Mapping[str, str | None]
) -> dict[str, tuple[Delivered, bool]]:
    """CPU time delivered to each instance where it is now, and whether it is starved."""
    found: dict[str, tuple[Delivered, bool]] = {}
    for (host, instance), means in measured.items():
        if running.get(instance) != host or not {"cpu", "waiting"} <= means.keys():
            continue
        waited = held_back(means)
        share = means["cpu"] / (means["cpu"] + waited) if waited > 0 else 1.0
        starved = share < LOW_DELIVERY and waited >= LEAST_HELD_BACK
        found[instance] = Delivered(instance, host, share), starved
    return found


def _by_host(hosts: Sequence[Host], label: str) -> dict[str, str]:
    return {host.id: host.labels[label] for host in hosts if label in host.labels}


# Vitals: what the service reports of its own state; read at the moment, nothing is kept.


@dataclass(frozen=True, slots=True)
class Vitals:
    """The cloud and the model that answer now.

    `hosts_without_data` were not seen for as long as is allowed and are rejected for that; `pending` answers hold their
    hosts; `demand` counts instances by what is known of their demand for CPUs (EVIDENCE_LEVELS); `found` and `missed`
    count what the model was to be asked and was remembered or not, since it answers; `alarms` counts those that stand
    by cause; `disagreements` are hosts on which sources differ, with one sentence each.
    """

    generation: int
    hosts: int
    hosts_without_data: int
    snapshot_age_s: float
    pending: int
    demand: Mapping[str, int]
    model: str
    origin: str
    degraded: bool
    found: int
    missed: int
    alarms: Mapping[str, int]
    disagreements: Mapping[str, str]


def take_vitals(view: CloudView, chosen: ActivePredictor, *, now: datetime, fresh_s: float) -> Vitals:
    """The vitals of a view and a predictor at `now`."""
    found, missed = chosen.remembered.counts()
    return Vitals(
        generation=view.counts.inventory,
        hosts=len(view.inventory.hosts),
        hosts_without_data=int(np.count_nonzero(view.snapshot.is_silent(fresh_s))),
        snapshot_age_s=max((now - view.snapshot.taken_at).total_seconds(), 0.0),
        pending=len(view.pending),
        demand=_demand(view),
        model=chosen.predictor.version,
        origin=chosen.predictor.origin,
        degraded=chosen.degraded,
        found=found,
        missed=missed,
        alarms=Counter(alarm.cause for alarm in view.alarms),
        disagreements={
            host.id: host.labels[DISAGREEMENT] for host in view.inventory.hosts if DISAGREEMENT in host.labels
        },
    )


def _demand(view: CloudView) -> Mapping[str, int]:
    counts = evidence_counts(map(view.snapshot.with_class, view.inventory.instances), view.snapshot.names.profiled)
    return {level: counts.get(level, 0) for level in EVIDENCE_LEVELS}


CELLS_AT_ONCE = 20_000  # instances of all hosts that are predicted together: about 60 MB
AT_ONCE = 30_000  # instances of a cloud that who looks at it waits for: less than a second
_NO_ROWS: Floats = np.zeros((0, 5))


class Overview:
    """Holds the last CloudNow and what was predicted of each situation in it; thread-safe.

    Hosts alike are predicted once, and after a change only those that were not there before it.
    """

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._making = threading.Lock()
        self._last: tuple[CloudView, Predictor, CloudNow] | None = None  # without what the predictor was asked before
        self._known: dict[bytes, Floats] = {}
        self._version = ""
        self._left: int | None = None  # hosts that are being predicted; None = they were never counted

    def is_quick(self, view: CloudView, chosen: ActivePredictor) -> bool:
        """Whether `now` has an answer within a second: it has it, or the cloud is not large."""
        last = self._last
        made = last is not None and last[0] is view and last[1] is chosen.predictor
        return made or len(view.inventory.instances) <= AT_ONCE

    def part_done(self, view: CloudView) -> float:
        """The part of the hosts that is not being predicted right now, 0-1; 0 before the first ones are."""
        if self._left is None:
            return 0.0
        return max(1 - self._left / max(len(view.snapshot.hosts), 1), 0.0)

    def now(self, view: CloudView, chosen: ActivePredictor) -> CloudNow:
        """All instances in this view as this predictor sees them."""
        with self._making:
            last = self._last
            if last is None or last[0] is not view or last[1] is not chosen.predictor:
                last = self._last = view, chosen.predictor, self._make(view, chosen)
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
            rows_by_key = {**rows_by_key, **self._predicted(snapshot, new, predictor)}  # a view keeps them all
        self._known, self._version = {key: rows_by_key[key] for key in keys if key in rows_by_key}, predictor.version
        return [rows_by_key[key] if there else _NO_ROWS for key, there in zip(keys, snapshot.residents, strict=True)]

    def _predicted(
        self, snapshot: ClusterSnapshot, new: Mapping[bytes, int], predictor: Predictor
    ) -> dict[bytes, Floats]:
        """The rows of `_expected` of the hosts at these positions, hosts of about one size together."""
        found: dict[bytes, Floats] = {}
        waiting = sorted(new, key=lambda key: -len(snapshot.residents[new[key]]))
        while waiting:
            self._left = len(waiting)
            at_once = max(CELLS_AT_ONCE // len(snapshot.residents[new[waiting[0]]]), 1)
            part, waiting = waiting[:at_once], waiting[at_once:]
            scenes = snapshot.scenes.take(np.array([new[key] for key in part], dtype=np.int64)).trimmed()
            rows = _now(predictor.predict(scenes, ()))
            found |= {key: row[: len(snapshot.residents[new[key]])].copy() for key, row in zip(part, rows, strict=True)}
        self._left = 0
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


def widened(shown: HostDetail, factors: monitoring.Factors) -> HostDetail:
    """The same with intervals as wide as observed outcomes show that they must be."""
    factor = factors.get(shown.now.host.id)
    return (
        shown
        if factor is None
        else replace(shown, effects=tuple(monitoring.inflated_effect(effect, factor) for effect in shown.effects))
    )


def _slowing(snapshot: ClusterSnapshot, position: int, predictor: Predictor, ratios: Floats) -> tuple[Slowing, ...]:
    """How much faster each running instance would be without each of its strongest neighbours, the largest loss
    first."""
    pairs = comparison.on_host(snapshot, predictor, position, ratios)
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
