"""Held: predictions for windows to come, and how well they held, in groups of bounded size; the only SQL on both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import sqlalchemy as sa

from advisor.store import locks
from advisor.store.observed import observed
from advisor.store.samples import samples, series
from advisor.store.schema import ID, VALUE, metadata
from advisor.store.statements import insert_new, selected, upsert
from models.evaluation.prediction_checks import WindowFigures, WindowKey

KEEP_S = 90 * 86_400.0  # groups of models and platforms that are gone

watches = sa.Table(
    "watches",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("ends_s", sa.Double, primary_key=True),  # of the window
    sa.Column("scene", sa.String(64), nullable=False),  # digest of who was there, with which settings
    sa.Column("predicted", VALUE, nullable=False),
)
held = sa.Table(
    "held",
    metadata,
    sa.Column("version", ID, primary_key=True),
    sa.Column("platform", ID, primary_key=True),
    sa.Column("level", sa.String(16), primary_key=True),  # empty = all levels
    sa.Column("question", sa.String(16), primary_key=True),
    sa.Column("contended", sa.Boolean, primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),  # grows with every change of any row
    sa.Column("last_s", sa.Double, nullable=False),
    sa.Column("figures", VALUE, nullable=False),
    sa.Index("ix_held_number", "number"),
)
_KEY = tuple(held.c[one.name] for one in fields(WindowKey))
_NEWEST = sa.select(  # made once: every question asks for it
    sa.select(sa.func.max(observed.c.id)).scalar_subquery(), sa.select(sa.func.max(held.c.number)).scalar_subquery()
)


@dataclass(frozen=True, slots=True)
class Watch:
    """What was predicted, before a window that ends at `ends_s`, for those on a host; `predicted` is plain JSON."""

    host: str
    ends_s: float
    scene: str
    predicted: Mapping[str, Any]


def newest(connection: sa.Connection) -> tuple[int, int]:
    """The numbers of the newest row observed and of the newest change here; both only grow, and 0 = there is none."""
    outcomes, windows = connection.execute(_NEWEST).one()
    return outcomes or 0, windows or 0


def watched(connection: sa.Connection, ends_s: float) -> bool:
    """Whether predictions are stored for the window that ends then."""
    return connection.scalar(sa.select(sa.func.count()).where(watches.c.ends_s == ends_s)) != 0


def watch(connection: sa.Connection, forecasts: Sequence[Watch]) -> None:
    """Store predictions for windows; where another process was faster its own stay."""
    insert_new(connection, watches, [asdict(forecast) for forecast in forecasts])


def due(connection: sa.Connection, before_s: float, most: int) -> tuple[Watch, ...]:
    """The predictions whose windows ended before a time, the oldest first, at most so many."""
    query = sa.select(watches).where(watches.c.ends_s <= before_s).order_by(watches.c.ends_s, watches.c.host)
    return tuple(Watch(**row) for row in connection.execute(query.limit(most)).mappings())


def take(connection: sa.Connection, forecast: Watch) -> bool:
    """Remove it; False = another process has done so, and counts it."""
    here = (watches.c.host == forecast.host, watches.c.ends_s == forecast.ends_s)
    return connection.execute(sa.delete(watches).where(*here)).rowcount == 1


def series_on(connection: sa.Connection, host: str, metrics: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Instance and metric of every series of instances on a host, by number."""
    here = (series.c.host == host, series.c.scope == "instance", series.c.metric.in_(metrics))
    return {row.id: (row.instance, row.metric) for row in connection.execute(sa.select(series).where(*here))}


def counts(connection: sa.Connection, ids: Iterable[int], begin_s: float, end_s: float) -> dict[int, int]:
    """How many samples each of these series has from one time to before another; none is left out."""
    here = (samples.c.time_s >= begin_s, samples.c.time_s < end_s)
    query = sa.select(samples.c.series, sa.func.count().label("number")).where(*here).group_by(samples.c.series)
    return {row.series: row.number for row in selected(connection, query, samples.c.series, ids)}


def load(connection: sa.Connection) -> dict[WindowKey, WindowFigures]:
    """Every group."""
    query = sa.select(*_KEY, held.c.figures)
    return {WindowKey(*key): WindowFigures.from_json(stored) for *key, stored in connection.execute(query)}


def change(connection: sa.Connection) -> dict[WindowKey, WindowFigures]:
    """Every group, which no other writer changes before this transaction ends; do this first in it."""
    locks.alone(connection, "held")
    return load(connection)


def put(connection: sa.Connection, groups: Mapping[WindowKey, WindowFigures]) -> None:
    """Insert or replace these groups, after `change`, and delete those that nothing was added to for KEEP_S."""
    number = (connection.scalar(sa.select(sa.func.max(held.c.number))) or 0) + 1
    rows = [
        {**asdict(key), "number": number, "last_s": figures.last_s, "figures": figures.as_json()}
        for key, figures in groups.items()
    ]
    upsert(connection, held, rows)
    newest_s = max((figures.last_s for figures in groups.values()), default=0.0)
    connection.execute(sa.delete(held).where(held.c.last_s < newest_s - KEEP_S))
