"""What was measured over time, for drawings: the eight metrics in equal steps, from the database or another store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

import numpy as np
from sqlalchemy import Connection

from advisor.domain import Histories, History
from advisor.errors import NotFound, SeriesUnavailable
from advisor.settings import Settings
from advisor.store import histories, instances
from advisor.store.sample_store import STORED, SampleStore
from advisor.telemetry import promql
from advisor.telemetry.antagonists import busiest
from advisor.telemetry.profiles import parse_since
from profiler.metrics import BY_NAME, EIGHT

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
        readings = promql.read(settings, instance, since=since, now=now).readings
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


def step_means(times: Sequence[float], values: Sequence[float], begin_s: float, step_s: float) -> histories.Means:
    """Ends and means of equal steps from `begin_s` on in which there are values."""
    at = np.floor((np.asarray(times) - begin_s) / step_s)
    steps, which, counts = np.unique(at, return_inverse=True, return_counts=True)
    sums = np.bincount(which, weights=np.asarray(values), minlength=len(steps))
    return (begin_s + (steps + 1) * step_s).tolist(), (sums / counts).tolist()


def _history(key: histories.Key, times: Sequence[float], values: Sequence[float]) -> History:
    host, instance, metric = key
    return History(host, instance, metric, BY_NAME[metric].unit, times, values)
