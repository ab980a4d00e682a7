"""What the store shows of growth: who came and went, and two weeks of the demand of instances that stayed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from statistics import fmean

from sqlalchemy import Connection

from advisor.domain import Growth, Instance
from advisor.lifecycle import growth
from advisor.settings import Settings
from advisor.store import stays
from advisor.store.rollups import BUCKET_S
from advisor.store.sample_store import SampleStore
from profiler.metrics import BY_NAME

LOOKED_S = 28 * 86_400.0  # how long it is looked at who comes and goes, at most
WEEK, MOST_APART = timedelta(days=7), timedelta(days=56)  # whose means are compared, and how far apart these are
MOST_SAMPLED = 60  # instances whose means are read: each has 2,016 in a week
LEAST_WINDOWS = 1_008  # of five minutes in such a week: half of it
_METRICS = [(BY_NAME["cpu"].default_scope, "cpu")]


def lately(
    connection: Connection, samples: SampleStore, settings: Settings, instances: Sequence[Instance], now: datetime
) -> tuple[Growth | None, tuple[str, ...]]:
    """How the cloud of these instances grew, None = not beyond doubt, and what was seen, in sentences."""
    came, went, seconds = stays.came_and_went(connection, now.timestamp(), LOOKED_S)
    load = None if settings.only_scraped else _load(connection, samples, settings, instances, now)
    return growth.measured(came, went, seconds / 86_400, load)


def _load(
    connection: Connection, samples: SampleStore, settings: Settings, instances: Sequence[Instance], now: datetime
) -> growth.LoadTrend | None:
    """By the last week that is kept as means, and the one that is MOST_APART before; later ones where that is not
    kept."""
    there = [one for one in instances if one.host]
    count = min(len(there), MOST_SAMPLED)
    some = [there[at * len(there) // count] for at in range(count)]
    end_s = (now - timedelta(days=settings.keep_samples_days)).timestamp() // BUCKET_S * BUCKET_S
    keys = _series(connection, samples, some)
    later = _means(connection, samples, keys, end_s)
    apart = MOST_APART
    while len(later) >= growth.LEAST_PAIRS and apart >= WEEK:
        former = _means(connection, samples, keys, end_s - apart.total_seconds())
        stayed = sorted(former.keys() & later.keys())
        if len(stayed) >= growth.LEAST_PAIRS:
            return growth.load_trend([(former[name], later[name]) for name in stayed], apart.days)
        apart -= WEEK
    return None


def _series(connection: Connection, samples: SampleStore, some: Iterable[Instance]) -> dict[int, str]:
    """The instance by the number of its series."""
    by_host: dict[str, list[str]] = {}
    for one in some:
        by_host.setdefault(str(one.host), []).append(one.id)
    return {
        number: instance
        for host, names in sorted(by_host.items())
        for number, (_, instance, _) in samples.of_host(connection, host, names, _METRICS).items()
        if instance is not None
    }


def _means(connection: Connection, samples: SampleStore, keys: dict[int, str], end_s: float) -> dict[str, float]:
    """The mean of each instance in the week that ends then, of those with enough windows."""
    found = samples.means(connection, keys, end_s - WEEK.total_seconds(), end_s, BUCKET_S)
    return {name: fmean(values) for name, (times, values) in found.items() if len(times) >= LEAST_WINDOWS}
