"""Predictions of contention held against what a simulation or a measurement found, beside two simple ones.

Errors are means of absolute errors: of the share per instance, and of the parts of time short in points (hundredths).
Intervals are 90 % bootstrap intervals over hosts, whose instances are not independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from models.arrays import Bools, Floats, Ints
from research import markdown
from research.contention import baselines, records
from research.contention.host_spec import HostOutcome, HostSpec, InstanceSpec
from research.contention.records import HostRecord

Predict = Callable[[Sequence[HostSpec]], Sequence[HostOutcome]]
LOAD_BANDS = ((0.0, 0.7), (0.7, 0.9), (0.9, 1.0), (1.0, 1.15), (1.15, 9.9))
SIZE_BANDS = ((1, 8), (9, 32), (33, 256))
RESAMPLES = 1000
SEED = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with the ends of its 90 % interval; NaN where nothing can be said."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a group of hosts or instances, of each predictor by its name."""

    what: str
    group: str
    hosts: int
    instances: int
    figures: Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Judgement:
    rows: Sequence[Row] = field(default_factory=tuple)

    def __str__(self) -> str:
        names = list(self.rows[0].figures) if self.rows else []
        return markdown.table(
            ["figure", "of", "hosts", "instances", *names],
            (
                [row.what, row.group, *map(str, (row.hosts, row.instances, *(row.figures[name] for name in names)))]
                for row in self.rows
            ),
        )

    def figure(self, what: str, group: str = "all") -> Figure:
        """One figure of what is judged; KeyError where the table has none of that name."""
        for row in self.rows:
            if (row.what, row.group) == (what, group):
                return row.figures["prediction"]
        raise KeyError((what, group))


@dataclass(frozen=True, slots=True)
class _Errors:
    """Absolute errors of each instance with its host's number; `host_short` of each host; shares by host for ranks."""

    host: Ints
    share: Floats
    short: Floats
    short_95: Floats
    host_short: Floats
    mean_share: Floats
    worst_share: Floats


def compare(predict: Predict, file: Path) -> Judgement:
    """The table of `predict` over the hosts of a file. Raises ValueError where it left out a host or an instance."""
    return judge(predict, list(records.read(file)))


def judge(predict: Predict, found: Sequence[HostRecord]) -> Judgement:
    """The table of `predict` over these records."""
    if not found:
        raise ValueError("no host to judge a prediction by")
    hosts = [record.spec for record in found]
    predictors: dict[str, Predict] = {
        "prediction": predict,
        "fluid of means": baselines.fluid_of_means,
        "one M/G/1-PS queue": baselines.single_queue,
    }
    errors = {name: _errors(found, one(hosts)) for name, one in predictors.items()}
    truth = _errors(found, [record.outcome for record in found])
    demand = np.array([one.demand_cpus for host in hosts for one in host.instances])
    rows = [
        _mean_row("MAE of share", "all", errors, "share"),
        _mean_row("MAE of share, weighted by demand", "all", errors, "share", weight=demand),
    ]
    for group, chosen in _groups(found).items():
        rows.append(_mean_row("MAE of share", group, errors, "share", weight=chosen.astype(float)))
    rows += [
        _mean_row("MAE of short, points", "all", errors, "short", factor=100.0),
        _mean_row("MAE of short_95, points", "all", errors, "short_95", factor=100.0),
        _host_row("MAE of the host's short, points", errors),
        _rank_row("Spearman of hosts by mean share", found, errors, truth, "mean_share"),
        _rank_row("Spearman of hosts by worst share", found, errors, truth, "worst_share"),
    ]
    if any(record.cloud for record in found):
        rows += [
            _rank_row("Spearman within clouds by mean share", found, errors, truth, "mean_share", within=True),
            _rank_row("Spearman within clouds by worst share", found, errors, truth, "worst_share", within=True),
        ]
    return Judgement(tuple(row for row in rows if row.instances))


def _errors(found: Sequence[HostRecord], predicted: Sequence[HostOutcome]) -> _Errors:
    if len(predicted) != len(found):
        raise ValueError(f"{len(predicted)} hosts predicted of {len(found)}")
    host, rows, mean, worst, short = [], [], [], [], []
    for number, (record, outcome) in enumerate(zip(found, predicted, strict=True)):
        shares = []
        for one in record.spec.instances:
            if one.id not in outcome.instances:
                raise ValueError(f"{record.spec.id}: {one.id} is not predicted")
            said, was = outcome.instances[one.id], record.outcome.instances[one.id]
            rows.append((said.share - was.share, said.short - was.short, said.short_95 - was.short_95))
            host.append(number)
            shares.append(said.share)
        mean.append(float(np.mean(shares)))
        worst.append(min(shares))
        short.append(abs(outcome.short - record.outcome.short))
    off = np.abs(np.array(rows, dtype=np.float64))
    return _Errors(
        np.array(host, dtype=np.int64),
        off[:, 0],
        off[:, 1],
        off[:, 2],
        np.array(short),
        np.array(mean),
        np.array(worst),
    )


def _groups(found: Sequence[HostRecord]) -> dict[str, Bools]:
    """Instances (of all hosts, in order) by load and size of their host, by loop, and by what the host has."""
    pairs = [(record, one) for record in found for one in record.spec.instances]
    host = np.repeat(np.arange(len(found)), [len(record.spec.instances) for record in found])
    load, cpus = (np.array([of(record.spec) for record in found])[host] for of in (_load, lambda spec: spec.cpus))
    loop, periodic = np.array([one.loop for _, one in pairs]), np.array([_periodic(*pair) for pair in pairs])
    has = [_has(record.spec) for record in found]
    groups: dict[str, Bools] = {}
    for low, high in LOAD_BANDS:
        groups[f"load {low:.2f} to {high:.2f}" if high < 9 else f"load from {low:.2f}"] = (low <= load) & (load < high)
    for first, last in SIZE_BANDS:
        groups[f"{first} to {last} CPUs"] = (first <= cpus) & (cpus <= last)
    for kind in ("open", "closed", "hog"):
        groups[kind] = (loop == kind) & ~periodic
    groups["periodic"] = periodic
    for what in ("weights", "caps", "pins"):
        groups[f"hosts with {what}"] = np.array([what in some for some in has])[host]
        groups[f"hosts without {what}"] = ~groups[f"hosts with {what}"]
    groups["hosts with none of them"] = np.array([not some for some in has])[host]
    return groups


def _periodic(record: HostRecord, one: InstanceSpec) -> bool:
    return bool(record.bursts and one.id in record.bursts and record.bursts[one.id].periodic)


def _load(host: HostSpec) -> float:
    return sum(one.demand_cpus for one in host.instances) / host.cpus


def _has(host: HostSpec) -> set[str]:
    found = set()
    if len({one.weight for one in host.instances}) > 1:
        found.add("weights")
    if any(one.cap_cpus < one.vcpus for one in host.instances):
        found.add("caps")
    if any(one.pin and len(set(one.pin)) < host.cpus for one in host.instances):
        found.add("pins")
    return found


def _mean_row(
    what: str, group: str, errors: Mapping[str, _Errors], name: str, weight: Floats | None = None, factor: float = 1.0
) -> Row:
    figures = {}
    some = next(iter(errors.values()))
    weights = np.ones(some.host.size) if weight is None else weight
    for predictor, one in errors.items():
        count = len(one.mean_share)
        total = _by_host(one.host, factor * weights * getattr(one, name), count)
        figures[predictor] = _ratio(total, _by_host(one.host, weights, count))
    chosen = weights > 0
    return Row(what, group, len(set(some.host[chosen])), int(chosen.sum()), figures)


def _by_host(host: Ints, values: Floats, hosts: int) -> Floats:
    return np.asarray(np.bincount(host, values, hosts), dtype=np.float64)


def _host_row(what: str, errors: Mapping[str, _Errors]) -> Row:
    figures = {name: _ratio(100.0 * one.host_short, np.ones(one.host_short.size)) for name, one in errors.items()}
    some = next(iter(errors.values()))
    return Row(what, "all", some.host_short.size, some.host.size, figures)


def _ratio(total: Floats, weight: Floats) -> Figure:
    if not weight.sum():
        return Figure(float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(SEED)
    counts = rng.multinomial(total.size, np.full(total.size, 1.0 / total.size), size=RESAMPLES)
    with np.errstate(invalid="ignore"):
        resampled = (counts @ total) / (counts @ weight)
    low, high = np.nanpercentile(resampled, (5, 95))
    return Figure(float(total.sum() / weight.sum()), float(low), float(high))


def _rank_row(
    what: str,
    found: Sequence[HostRecord],
    errors: Mapping[str, _Errors],
    truth: _Errors,
    name: str,
    within: bool = False,
) -> Row:
    if within:
        clouds: dict[str, list[int]] = {}
        for number, record in enumerate(found):
            clouds.setdefault(record.cloud, []).append(number)
        figures = {
            predictor: _mean_spearman(getattr(one, name), getattr(truth, name), list(clouds.values()))
            for predictor, one in errors.items()
        }
    else:
        figures = {predictor: _spearman(getattr(one, name), getattr(truth, name)) for predictor, one in errors.items()}
    return Row(what, "all", len(found), truth.host.size, figures)


def _spearman(said: Floats, was: Floats) -> Figure:
    picked = np.random.default_rng(SEED).integers(said.size, size=(300, said.size))
    low, high = _percentiles(_rank_correlations(said[picked], was[picked]))
    return Figure(rank_correlation(said, was), low, high)


def _mean_spearman(said: Floats, was: Floats, clouds: Sequence[Sequence[int]]) -> Figure:
    """Of each cloud's hosts, then the mean over clouds; a cloud whose hosts are all alike says nothing."""
    each = np.array([rank_correlation(said[list(cloud)], was[list(cloud)]) for cloud in clouds])
    each = each[~np.isnan(each)]
    if not each.size:
        return Figure(float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(SEED)
    low, high = _percentiles(rng.choice(each, size=(RESAMPLES, each.size)).mean(axis=1))
    return Figure(float(each.mean()), low, high)


def rank_correlation(said: Floats, was: Floats) -> float:
    """Spearman's, with mean ranks of ties: 0 where the prediction ranks all hosts alike, NaN where they are alike."""
    return float(_rank_correlations(said[np.newaxis], was[np.newaxis])[0])


def _rank_correlations(said: Floats, was: Floats) -> Floats:
    """`rank_correlation` of each row of two (K, N); (K,)."""
    first, second = (
        ranks - ranks.mean(axis=1, keepdims=True) for ranks in (rankdata(one, axis=1) for one in (said, was))
    )
    size, other = (np.sqrt(np.square(one).sum(axis=1)) for one in (first, second))
    both = np.divide((first * second).sum(axis=1), size * other, out=np.zeros(len(said)), where=size * other > 0)
    return np.where(other > 0, both, np.nan)


def _percentiles(values: Floats) -> tuple[float, float]:
    low, high = np.nanpercentile(values, (5, 95))
    return float(low), float(high)
