"""Predicts the ratios of all instances at every moment of a replay, by the model or by fair shares alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Instance
from advisor.domain.replays import FAIR_SHARES
from advisor.errors import BrokenArtifact
from advisor.replay.packed_cloud import TraceDemand
from advisor.rounding import SLACK
from models.arrays import Floats, Ints
from models.data.scene import SCENE_FIELDS, ProfileTable, SceneBatch, build_batch, empty_slots, slot_values
from models.physics.demands import capacity, link, profile_column
from models.physics.devices import fill
from models.prediction import TARGETS, BandArrays, InterferencePrediction, Predictor, unasked

# The judge of replays that no model has a part in: what a fair share leaves of the demand in the trace.


class FairShares:
    """Each host's CPUs, network and disk are shared max-min fairly, with one weight for each instance.

    The ratio is what an instance got of what it asked for in that step, of the resource that it got least of. Nothing
    is assumed of bursts within a step, of caches or of memory, so that more harm than this is possible and less is not.
    An interval has no width.
    """

    version = FAIR_SHARES
    origin = "demand of the trace"
    metrics: tuple[str, ...] = ()

    def predict(self, scenes: SceneBatch, _targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """What was served of each demand, (S, N); nothing is said of latency and jitter."""
        here, load = scenes.present, np.minimum(scenes.load, 1.0)
        disk = capacity(scenes, "disk_mb_s")
        served = np.minimum.reduce(
            [
                _served(scenes.pcpus.astype(np.float64), np.where(here, load * scenes.vcpus, 0.0)),
                _served(link(scenes), _rate(scenes, "net_mbit", load)),
                _served(np.where(disk > 0, disk, np.inf), _rate(scenes, "disk_mb_s", load)),
            ]
        )
        ratio = np.where(here, served, np.nan)
        nothing = unasked(here)
        return InterferencePrediction(BandArrays(ratio, ratio, ratio), nothing, nothing, np.zeros_like(here))


def _rate(scenes: SceneBatch, key: str, load: Floats) -> Floats:
    return np.where(scenes.present, np.nan_to_num(profile_column(scenes, key)) * load, 0.0)


def _served(room: Floats, demand: Floats) -> Floats:
    """The part of its demand that each gets; 1 where it has none."""
    served = fill(room, demand, np.ones_like(demand))
    return np.divide(served, demand, out=np.ones_like(demand), where=demand > 0)


MAX_CELLS = 300_000  # scenes x slots x slots that are predicted at a time
BIN, MAX_RATIO = 0.001, 1.5  # ratios are counted in bins this wide, the last one takes all above
BINS = round(MAX_RATIO / BIN)


@dataclass(frozen=True, slots=True)
class ReplayPredictions:
    """Predictions for T moments.

    `below` (T,) counts instances under the limit, `worst` (T,) is the lowest T/B, inf for an empty cloud; expected and
    lower ratios are counted by bin, (BINS,), with their number and sum.
    """

    below: Ints
    worst: Floats
    expected: Ints
    lower: Ints
    count: int
    total: float

    def plus(self, other: ReplayPredictions) -> ReplayPredictions:
        """The sum with another cloud at the same moments."""
        sums = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return ReplayPredictions(**{**sums, "worst": np.minimum(self.worst, other.worst)})


def predict_replay(
    demand: TraceDemand, where: Ints, first: int, predictor: Predictor, keep_ratio: float
) -> ReplayPredictions:
    """Predict every instance's T/B at `where` (T, I), host numbers with -1 = none, from step `first` on.

    BrokenArtifact when the model returns no finite numbers.
    """
    moments = len(where)
    below, worst = np.zeros(moments, dtype=np.int64), np.full(moments, np.inf)
    expected, lower = np.zeros(BINS, dtype=np.int64), np.zeros(BINS, dtype=np.int64)
    count, total = 0, 0.0
    layout = _Layout.of(demand)
    for begin, end in _pieces(where):
        scenes, scene, slot, moment = layout.scenes(demand, where[begin:end], first + begin)
        band = predictor.predict(scenes, ()).throughput
        ratio, low = band.expected[scene, slot], band.lower[scene, slot]
        if not (np.isfinite(ratio).all() and np.isfinite(low).all()):
            raise BrokenArtifact(f"model {predictor.version} gave no finite throughput for some instance")
        below[begin:end] = np.bincount(moment[ratio < keep_ratio - SLACK], minlength=end - begin)
        np.minimum.at(worst, begin + moment, ratio)
        expected += _counted(ratio)
        lower += _counted(low)
        count, total = count + len(ratio), total + float(ratio.sum())
    return ReplayPredictions(below, worst, expected, lower, count, total)


def _counted(ratios: Floats) -> Ints:
    return np.bincount(np.clip((ratios / BIN + 1e-6).astype(np.int64), 0, BINS - 1), minlength=BINS)


def _pieces(where: Ints) -> Iterator[tuple[int, int]]:
    """Ranges [begin, end) of moments predicted together; empty moments are skipped."""
    begin, used, slots = 0, 0, 0
    for moment, places in enumerate(where):
        there = np.bincount(places[places >= 0])
        hosts, most = int((there > 0).sum()), int(there.max(initial=0))
        if used and (used + hosts) * max(slots, most) ** 2 > MAX_CELLS:
            yield begin, moment
            begin, used, slots = moment, 0, 0
        used, slots = used + hosts, max(slots, most)
    if used:
        yield begin, len(where)


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is constant over time: an empty host as a scene, slot values, and each instance's profile row (I,)."""

    host: SceneBatch
    any_instance: dict[str, np.generic | NDArray[np.bool_]]
    row: Ints

    @classmethod
    def of(cls, demand: TraceDemand) -> _Layout:
        table = ProfileTable.build(demand.profiles)
        host = build_batch([(demand.host, ())], table)
        row = np.array([table.row(name, demand.host.platform) for name in demand.names], dtype=np.int64)
        return cls(host, slot_values(Instance("any_instance"), 0, host.shared[0]), row)

    def scenes(self, demand: TraceDemand, where: Ints, step: int) -> tuple[SceneBatch, Ints, Ints, Ints]:
        """A scene for every host in use at each moment; and scene, slot and moment of every instance."""
        moment, who = np.nonzero(where >= 0)
        key = moment * (int(where.max()) + 1) + where[moment, who]
        order = np.argsort(key, kind="stable")
        moment, who = moment[order], who[order]
        _, first, scene = np.unique(key[order], return_index=True, return_inverse=True)
        slot = np.arange(len(who)) - first[scene]
        shape = (len(first), int(slot.max()) + 1)
        load = demand.loads(step, step + len(where))[moment, who]
        table, row = self._table(demand, step, moment, who, load)
        own = {"present": True, "profile": row, "load": load, "vcpus": demand.trace.vcpus[who]}
        columns = empty_slots(shape, demand.host.pcpus)
        for name, value in self.any_instance.items():
            columns[name][scene, slot] = own.get(name, value)
        hosts = np.zeros(len(first), dtype=np.int64)
        of_hosts = {name: getattr(self.host, name)[hosts] for name in SCENE_FIELDS}
        return SceneBatch(table=table, **of_hosts, **columns), scene, slot, moment

    def _table(
        self, demand: TraceDemand, step: int, moment: Ints, who: Ints, load: Floats
    ) -> tuple[ProfileTable, Ints]:
        """The profiles and each instance's row; traces with network or disk have one row per instance and moment."""
        table, rates = self.host.table, demand.rates()
        if not rates:
            return table, self.row[who]
        columns = (*table.columns, *(name for name in rates if name not in table.columns))
        known = len(table.values)  # they stay: what a host can do is guessed by all profiles, whoever is there
        values = np.full((known + len(who), len(columns)), np.nan)
        values[:, : len(table.columns)] = np.concatenate([table.values, table.values[self.row[who]]])
        for name, rate in rates.items():  # over the load, by which it is multiplied again
            values[known:, columns.index(name)] = rate[step + moment, who] / load
        names = (*table.names, *(demand.names[number] for number in who.tolist()))
        return ProfileTable(columns, values, {}, names, table.platforms), np.arange(known, len(values))
