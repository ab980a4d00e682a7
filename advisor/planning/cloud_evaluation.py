"""What a whole cloud is worth: ratios against those required, sums of effects, costs of hosts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import NO_SCORES, Band, Effect, Host, Instance, PlanSums, ScoreSummary, unpinned
from advisor.planning.migration_time import label_number
from advisor.prediction.active import band, effect
from advisor.rounding import SLACK
from advisor.scheduling import scoring
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.layout import HostArrays
from advisor.snapshot.pressure import pressure
from models.arrays import Bools, Floats
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.features.feature_matrix import solo_ratio
from models.prediction import InterferencePrediction, Predictor, joined

# What a cloud draws and costs, by labels of its hosts.

# Labels of a host: watts without any load and with all CPUs busy, and what it costs a month in any one currency.
IDLE_LABEL, FULL_LABEL, PRICE_LABEL = "watts_idle", "watts_full", "price_per_month"


def watts(snapshot: ClusterSnapshot) -> float | None:
    """What the hosts in use draw, W, linear in how busy their CPUs are; empty hosts count as switched off.

    A line between idle and full load errs by a few per cent on servers (Fan, Weber and Barroso, ISCA 2007). None where
    a host in use does not say both.
    """
    used = [host for host, residents in zip(snapshot.hosts, snapshot.residents, strict=True) if residents]
    if any(label_number(host.labels, label) is None for host in used for label in (IDLE_LABEL, FULL_LABEL)):
        return None
    pressures = pressure(snapshot)
    return _sum(_watts(host, pressures[host.id]["cpu"] or 0.0) for host in used)


def price(snapshot: ClusterSnapshot) -> float | None:
    """What all hosts cost a month, used or not; None where one does not say."""
    return _sum(label_number(host.labels, PRICE_LABEL) for host in snapshot.hosts)


def wrong_labels(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """A sentence for each of these labels that is no number on some host, so that no figure is missing silently."""
    sentences = []
    for label in (IDLE_LABEL, FULL_LABEL, PRICE_LABEL):
        wrong = (host for host in snapshot.hosts if label in host.labels and label_number(host.labels, label) is None)
        if (host := next(wrong, None)) is not None:
            text = host.labels[label][:40]
            sentences.append(
                f"{host.id} has the label {label}: {text}, which is no number from 0 on; it counts as not said."
            )
    return tuple(sentences)


def _watts(host: Host, busy: float) -> float | None:
    idle, full = label_number(host.labels, IDLE_LABEL), label_number(host.labels, FULL_LABEL)
    return None if idle is None or full is None else idle + (full - idle) * min(busy, 1.0)


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if not known or None in known else sum(value for value in known if value is not None)


# Required ratios: the lowest T/B that each instance must keep, by its own limit or its own settings.


def required_ratios(scenes: SceneBatch, min_ratio: Floats, keep_ratio: float) -> Floats:
    """The lowest accepted T/B, (S, N): `min_ratio` (S, N) where it is a number, else a share of the ratio alone.

    The share is `keep_ratio` of what the instance's own cap, rate and disk limit allow it alone (1 without any),
    because neighbours do not cause the rest. The prior computes it, so it is the same for every model.
    """
    return np.where(np.isnan(min_ratio), keep_ratio * solo_ratio(scenes, "throughput"), min_ratio)


def required_ratios_of(pairs: Sequence[tuple[Host, Instance]], table: ProfileTable, keep_ratio: float) -> Floats:
    """The same for instances, each on the given host, (I,); pins beyond the host's pCPUs are ignored."""
    limits = [instance.min_throughput_ratio for _, instance in pairs]
    ratios = np.array([keep_ratio if limit is None else limit for limit in limits], dtype=np.float64)
    without_limit = [at for at, (_, instance) in enumerate(pairs) if limits[at] is None and _limited(instance)]
    if without_limit:
        scenes = build_batch([(pairs[at][0], (_pinned_within(*pairs[at]),)) for at in without_limit], table)
        ratios[without_limit] = required_ratios(scenes, np.full(scenes.present.shape, np.nan), keep_ratio)[:, 0]
    return ratios


def _limited(instance: Instance) -> bool:
    settings = instance.settings
    return not (settings.cap_percent is None and settings.network is None and settings.disk_limit_mb_s is None)


def _pinned_within(host: Host, instance: Instance) -> Instance:
    pinning = instance.settings.pinning
    if pinning is None or not host.lacks(pinning.named):
        return instance
    return unpinned(instance)


HOSTS_AT_ONCE = 1000  # of a large cloud in one prediction: 30,000 instances take about 90 MB
EffectsByHost = Mapping[str, tuple[Effect, ...]]


@dataclass(frozen=True, slots=True)
class CloudEvaluation:
    """A cloud with one model's prediction for every instance; None where no instance is there."""

    snapshot: ClusterSnapshot
    prediction: InterferencePrediction | None

    @classmethod
    def of(
        cls, snapshot: ClusterSnapshot, predictor: Predictor, former: CloudEvaluation | None = None
    ) -> CloudEvaluation:
        """Predict all hosts in one batch; of a large cloud part by part, and only those that are not as in `former`,
        which is of the same hosts by the same predictor."""
        scenes = snapshot.scenes
        if not scenes.present.any():
            return cls(snapshot, None)
        if len(snapshot.hosts) <= HOSTS_AT_ONCE:
            return cls(snapshot, predictor.predict(scenes))
        new, parts = np.arange(len(snapshot.hosts)), []
        before = None if former is None else former.prediction
        if former is not None and before is not None and before.outside.shape == scenes.present.shape:
            same = former.snapshot.fingerprints == snapshot.fingerprints
            new, known = np.flatnonzero(~same), np.flatnonzero(same)
            parts = [(known, before.take(known))]
        for first in range(0, len(new), HOSTS_AT_ONCE):
            rows = new[first : first + HOSTS_AT_ONCE]
            parts.append((rows, predictor.predict(scenes.take(rows))))
        return cls(snapshot, joined(parts, scenes.present.shape))

    def effects(self, before: EffectsByHost | None = None, hosts: Collection[str] | None = None) -> EffectsByHost:
        """The effects on every instance of every host, or of these hosts; `before` are those of the cloud as it was."""
        known = {was.instance: was for effects in (before or {}).values() for was in effects}
        prediction = self.prediction
        if prediction is None:
            return {host.id: () for host in self.snapshot.hosts if hosts is None or host.id in hosts}
        return {
            host.id: tuple(
                _since(effect(resident.id, prediction, scene, slot), known.get(resident.id))
                for slot, resident in sorted(enumerate(self.snapshot.residents[scene]), key=lambda pair: pair[1].id)
            )
            for scene, host in enumerate(self.snapshot.hosts)
            if hosts is None or host.id in hosts
        }

    def ratios(self) -> Mapping[str, Band]:
        """T/B of every instance, by id."""
        if self.prediction is None:
            return {}
        return {
            resident.id: band(self.prediction.throughput, scene, slot)
            for scene, residents in enumerate(self.snapshot.residents)
            for slot, resident in enumerate(residents)
        }

    def below(self, keep_ratio: float) -> frozenset[str]:
        """Ids of instances that violate a limit: too low a throughput or too high a latency.

        Without a limit of its own an instance must keep `keep_ratio` of what its own settings allow it alone.
        """
        if self.prediction is None:
            return frozenset()
        violated = beyond_limits(self.snapshot, self.prediction, keep_ratio)
        return frozenset(
            self.snapshot.residents[scene][slot].id for scene, slot in zip(*np.nonzero(violated), strict=True)
        )

    def sums(self, keep_ratio: float) -> PlanSums:
        """Summary figures of the cloud."""
        present = self.snapshot.scenes.present
        expected = np.ones(0) if self.prediction is None else self.prediction.throughput.expected[present]
        scores = self.scores()
        return PlanSums(
            hosts=len(self.snapshot.hosts),
            hosts_used=int(present.any(axis=1).sum()) if present.size else 0,
            instances=len(expected),
            below=len(self.below(keep_ratio)),
            worst=float(expected.min()) if len(expected) else 1.0,
            mean=float(expected.mean()) if len(expected) else 1.0,
            total=float(expected.sum()),
            watts=watts(self.snapshot),
            price=price(self.snapshot),
            score=scores.mean,
            score_lowest=scores.lowest,
            scores=scores.counts if scores.instances else (),
        )

    def scores(self) -> ScoreSummary:
        """Predicted scores of all instances; before and after a plan alike, as nothing is measured of the latter."""
        prediction, present = self.prediction, self.snapshot.scenes.present
        if prediction is None:
            return NO_SCORES
        unknown = np.full(int(present.sum()), np.nan)
        delivered = unknown if prediction.pressure is None else prediction.pressure.share[present]
        found = scoring.score_factors(prediction.throughput.expected[present], delivered, unknown, unknown)
        return scoring.score_summary(found.scores, np.zeros(len(unknown), dtype=bool))


def _since(now: Effect, former: Effect | None) -> Effect:
    """The same with what was predicted of this instance before."""
    if former is None:
        return now
    cpu = now.cpu
    if cpu is not None and former.cpu is not None:
        cpu = replace(cpu, short_before=former.cpu.short)
    return replace(now, before=former.throughput_ratio, cpu=cpu)


def beyond_limits(rows: HostArrays, prediction: InterferencePrediction, keep_ratio: float) -> Bools:
    """Which instances violate a limit by expectation, as in `CloudEvaluation.below`; (H, N)."""
    required = required_ratios(rows.scenes, rows.min_ratio, keep_ratio)
    too_slow = np.nan_to_num(prediction.latency.expected, nan=1.0) > np.nan_to_num(rows.max_latency, nan=np.inf) + SLACK
    too_short = prediction.time_short() > np.nan_to_num(rows.max_short, nan=np.inf) + SLACK
    lost = prediction.throughput.expected < required - SLACK
    return np.asarray(rows.scenes.present & (lost | too_slow | too_short))
