"""Histories of instances: what they used over time, and what they obtained of what they demanded."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import numpy as np
from sqlalchemy import Connection

from advisor.domain import Histories, History, InstanceObtained, Obtained
from advisor.errors import NotFound, SeriesUnavailable
from advisor.settings import Settings
from advisor.store import instances, rollups
from advisor.store.rollups import BUCKET_S
from advisor.store.sample_store import STORED, SampleStore
from advisor.telemetry import series_store
from advisor.telemetry.antagonists import busiest
from advisor.telemetry.demands import held_back
from advisor.telemetry.profiles import parse_since
from models.figures import utc_time
from profiler.metrics import ADDITIONAL, BY_NAME, EIGHT, OUTCOMES

STEPS = 120  # in one drawing: a few hundred pixels wide it shows no more
MOST_DRAWN = 50  # instances of a host: each has eight series, and a chart has six lines
LEAST_STEP_S = 30.0  # three of the agent's windows
_METRICS = [(metric.default_scope, metric.name) for metric in EIGHT]


def stored(
    connection: Connection,
    host: str | None,
    instance: str | None,
    *,
    since: str,
    now: datetime,
    samples: SampleStore = STORED,
) -> Histories:
    """Histories of the busiest instances on a host now, MOST_DRAWN of them, or of one instance and its host; empty
    where nothing is known. A store of samples that does not answer is no error, as for `scraped`."""
    begin_s, end_s, step_s = _steps(since, now)
    if instance is not None:
        placed = instances.get(connection, instance)
        on = [placed.host] if placed is not None and placed.host else []
        keys = samples.of_instance(connection, instance, on, _METRICS)
    else:
        there = busiest(instances.on_hosts(connection, [host or ""]), MOST_DRAWN)
        names = [resident.id for resident in there]
        keys = samples.of_host(connection, host or "", names, _METRICS)
    try:
        series_means = samples.means(connection, keys, begin_s, end_s, step_s)
    except SeriesUnavailable as error:
        return Histories(begin_s, end_s, step_s, (), elsewhere=True, missing=error.message)
    return Histories(begin_s, end_s, step_s, tuple(_history(key, *means) for key, means in series_means.items()))


def scraped(settings: Settings, instance: str | None, *, since: str, now: datetime) -> Histories:
    """Histories of one instance and its host, from the store that `prometheus_url` names; nothing where no instance is
    named, for a host with all its instances is too much to ask of another store for a page.

    A store that does not answer, or with too much, is no error: what is predicted is shown without what was measured.
    """
    begin_s, end_s, step_s = _steps(since, now)
    if instance is None:
        return Histories(begin_s, end_s, step_s, (), elsewhere=True)
    try:
        readings = series_store.read(settings, instance, since=since, now=now).readings
    except NotFound:
        return Histories(begin_s, end_s, step_s, (), elsewhere=True)
    except SeriesUnavailable as error:
        return Histories(begin_s, end_s, step_s, (), elsewhere=True, missing=error.message)
    own_and_host = {
        (host, owner, metric): means
        for (host, owner, scope, metric), means in readings.items()
        if owner in {instance, None} and (scope, metric) in _METRICS and (owner is None) == (scope == "host")
    }
    drawn = (_history(key, *step_means(*means, begin_s, step_s)) for key, means in own_and_host.items())
    return Histories(begin_s, end_s, step_s, tuple(history for history in drawn if history.times), elsewhere=True)


def _steps(since: str, now: datetime) -> tuple[float, float, float]:
    """Begin, end and step in seconds, borders being multiples of the step, so that the same step is always the same."""
    asked_s = parse_since(since)
    step_s = max(LEAST_STEP_S, math.ceil(asked_s / STEPS / LEAST_STEP_S) * LEAST_STEP_S)
    end_s = math.ceil(now.timestamp() / step_s) * step_s
    return end_s - math.ceil(asked_s / step_s) * step_s, end_s, step_s


def step_means(times: Sequence[float], values: Sequence[float], begin_s: float, step_s: float) -> rollups.Means:
    """Ends and means of equal steps from `begin_s` on in which there are values."""
    at = np.floor((np.asarray(times) - begin_s) / step_s)
    steps, which, counts = np.unique(at, return_inverse=True, return_counts=True)
    sums = np.bincount(which, weights=np.asarray(values), minlength=len(steps))
    return (begin_s + (steps + 1) * step_s).tolist(), (sums / counts).tolist()


def _history(key: rollups.Key, times: Sequence[float], values: Sequence[float]) -> History:
    host, instance, metric = key
    return History(host, instance, metric, BY_NAME[metric].unit, times, values)


# What an instance obtained as it was measured: its share of CPU time, and its stalls at disks and networks.

SHARE = "cpu_share"
_SHARE_HELP = "CPU delivered: run / (run + wait), without waiting for its own cap"
_SHOWN = {metric.name: metric for metric in ADDITIONAL}
_OF_CPU = ("cpu", "waiting", "throttled")
_OBTAINED_METRICS = tuple(dict.fromkeys(("cpu", "waiting", *OUTCOMES)))
_TAIL = 0.95  # of the windows were no worse
Windows = Mapping[str, Mapping[float, float]]  # metric → end of a window in s → mean


def stored_obtained(
    connection: Connection, instance: str, *, since: str, now: datetime, samples: SampleStore = STORED
) -> InstanceObtained:
    """What was stored in windows of five minutes, wherever it was; NotFound when there is no such instance."""
    if instances.get(connection, instance) is None:
        raise NotFound(f"there is no instance {instance}")
    begin_s, end_s = _span(since, now)
    try:
        windows = _windows(connection, samples, instance, begin_s, end_s, BUCKET_S, _OBTAINED_METRICS)
    except SeriesUnavailable:
        return InstanceObtained(instance, utc_time(begin_s), utc_time(end_s), (), elsewhere=True)
    return InstanceObtained(instance, utc_time(begin_s), utc_time(end_s), obtained(windows))


def scraped_obtained(settings: Settings, instance: str, *, since: str, now: datetime) -> InstanceObtained:
    """The same from the store that `prometheus_url` names; empty where it has nothing or does not answer."""
    begin_s, end_s = _span(since, now)
    try:
        readings = series_store.read(settings, instance, since=since, now=now).readings
    except (NotFound, SeriesUnavailable):
        return InstanceObtained(instance, utc_time(begin_s), utc_time(end_s), (), elsewhere=True)
    windows: dict[str, dict[float, float]] = {}
    for (_, owner, scope, metric), (times, values) in readings.items():
        if (owner, scope) == (instance, "instance") and metric in _OBTAINED_METRICS:
            ends, means = step_means(times, values, begin_s, BUCKET_S)
            windows.setdefault(metric, {}).update(zip(ends, means, strict=True))
    return InstanceObtained(instance, utc_time(begin_s), utc_time(end_s), obtained(windows), elsewhere=True)


def obtained(windows: Windows) -> tuple[Obtained, ...]:
    """Summaries of windows, the share of CPU time first; of that less is worse, and of everything else more."""
    summaries = [_summary(SHARE, "", _SHARE_HELP, shares_obtained(windows), worse=-1)]
    for name in OUTCOMES:
        metric = _SHOWN[name]
        summaries.append(_summary(name, metric.unit, metric.help, list(windows.get(name, {}).values()), worse=1))
    return tuple(summary for summary in summaries if summary is not None)


def shares_obtained(windows: Windows) -> list[float]:
    """Run / (run + wait) of each window in which it wanted any, without what its own cap took."""
    return list(shares_obtained_at(windows).values())


def shares_obtained_at(windows: Windows) -> dict[float, float]:
    """The same by the end of the window, s since the epoch."""
    ratios = {}
    for at, run in windows.get("cpu", {}).items():
        metrics = {name: windows[name][at] for name in ("waiting", "throttled") if at in windows.get(name, {})}
        demand = run + held_back(metrics)
        if "waiting" in metrics and demand > 0:
            ratios[at] = run / demand
    return ratios


def delivered(
    connection: Connection,
    instance_ids: Collection[str],
    begin_s: float,
    end_s: float,
    window_s: float,
    capped: Collection[str] = (),
    samples: SampleStore = STORED,
) -> dict[str, dict[float, float]]:
    """CPU delivered of each instance by the end of its windows of this length, wherever it was; of those that are
    `capped`, waiting for their own cap counts as well."""
    found = {}
    for name in sorted(instance_ids):
        metrics = _OF_CPU[:2] if name in capped else _OF_CPU
        found[name] = shares_obtained_at(_windows(connection, samples, name, begin_s, end_s, window_s, metrics))
    return found


def _windows(
    connection: Connection,
    samples: SampleStore,
    instance: str,
    begin_s: float,
    end_s: float,
    window_s: float,
    metrics: Sequence[str],
) -> dict[str, dict[float, float]]:
    keys = samples.of_instance(connection, instance, (), [("instance", metric) for metric in metrics])
    means = samples.means(connection, keys, begin_s, end_s, window_s)
    windows: dict[str, dict[float, float]] = {}
    for (_, _, metric), (times, values) in means.items():  # of a window in which it moved, the last host's counts
        windows.setdefault(metric, {}).update(zip(times, values, strict=True))
    return windows


def _summary(metric: str, unit: str, text: str, values: Sequence[float], *, worse: int) -> Obtained | None:
    if not values:
        return None
    ordered = worse * np.sort(worse * np.asarray(values))  # the worst comes last
    tail = float(np.quantile(worse * ordered, _TAIL)) * worse
    return Obtained(metric, unit, text, float(ordered.mean()), tail, float(ordered[-1]), len(values))


def _span(since: str, now: datetime) -> tuple[float, float]:
    """Begin and end, borders of windows."""
    end_s = -(-now.timestamp() // BUCKET_S) * BUCKET_S
    return end_s - max(parse_since(since) // BUCKET_S, 1) * BUCKET_S, end_s
