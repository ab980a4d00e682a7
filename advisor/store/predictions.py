"""The ledger of predictions for windows to come: what was observed and how they held; the only SQL on these."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import sqlalchemy as sa

from advisor.store import engine, samples
from advisor.store.samples import series
from advisor.store.schema import ID, VALUE, UtcTime, insert_new, metadata, selected, upsert
from models.evaluation.prediction_checks import CheckedPrediction, WindowFigures, WindowKey

# Observed: the table of predictions beside what was measured, bounded per platform; the only SQL about them.

observed = sa.Table(
    "observed",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),  # in the order in which rows came
    sa.Column("source", sa.String(64), nullable=False),  # rows of one source were measured together
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("version", ID, nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("target", sa.String(16), nullable=False),
    sa.Column("platform", ID, nullable=False),
    sa.Column("workload", ID, nullable=False),  # empty = unknown
    sa.Column("instance", ID, nullable=False),
    sa.Column("expected", sa.Double, nullable=False),
    sa.Column("lower", sa.Double, nullable=False),
    sa.Column("upper", sa.Double, nullable=False),
    sa.Column("outside", sa.Boolean, nullable=False),
    sa.Column("observed", sa.Double, nullable=False),
    sa.UniqueConstraint("source", "instance", "target", "version"),
    sa.Index("ix_observed_platform_id", "platform", "id"),
    sa.Index("ix_observed_version_id", "version", "id"),
    sqlite_autoincrement=True,  # the number of a row that is gone is never given again
)
_COLUMNS = tuple(observed.c[field.name] for field in fields(CheckedPrediction))


def add_observed(connection: sa.Connection, rows: Sequence[CheckedPrediction], *, keep: int) -> int:
    """Insert the rows that are new, forget the oldest of their platforms beyond `keep`; returns how many were new."""
    engine.alone_with(
        connection, "observed"
    )  # so that numbers have the order of commits, and readers of news miss none
    added = insert_new(connection, observed, [asdict(row) for row in rows])
    for platform in {row.platform for row in rows}:
        here = observed.c.platform == platform
        newest_gone = sa.select(observed.c.id).where(here).order_by(observed.c.id.desc()).offset(keep).limit(1)
        connection.execute(sa.delete(observed).where(here, observed.c.id <= newest_gone.scalar_subquery()))
    return added


def forget_observed(connection: sa.Connection, source: str) -> None:
    """Delete what one source reported, because it says otherwise now."""
    connection.execute(sa.delete(observed).where(observed.c.source == source))


def platforms_observed_since(connection: sa.Connection, number: int) -> tuple[str, ...]:
    """The platforms that have a row with a higher number."""
    return tuple(connection.scalars(sa.select(observed.c.platform).where(observed.c.id > number).distinct()))


def observed_of_version(connection: sa.Connection, version: str, *, last: int) -> tuple[CheckedPrediction, ...]:
    """What a model's figures need, in the order in which it came: of each role and target the `last` rows of each
    workload and twice as many of each platform."""
    parts = (observed.c.role, observed.c.target)
    on_platform, of_workload = (
        sa.func.row_number().over(partition_by=(*parts, column), order_by=observed.c.id.desc()).label(column.name)
        for column in (observed.c.platform, observed.c.workload)
    )
    placed = sa.select(observed.c.id, on_platform, of_workload).where(observed.c.version == version).subquery()
    wanted = sa.or_(placed.c.platform <= 2 * last, placed.c.workload <= last)
    query = sa.select(*_COLUMNS).join(placed, placed.c.id == observed.c.id).where(wanted).order_by(observed.c.id)
    return tuple(CheckedPrediction(*row) for row in connection.execute(query))


def throughput_observed_on(
    connection: sa.Connection, platform: str, version: str, *, last: int
) -> tuple[CheckedPrediction, ...]:
    """The `last` rows of a model about throughput on one platform, in the order in which they came."""
    here = (observed.c.platform == platform, observed.c.version == version, observed.c.target == "throughput")
    query = sa.select(*_COLUMNS).where(*here).order_by(observed.c.id.desc()).limit(last)
    return tuple(CheckedPrediction(*row) for row in connection.execute(query))[::-1]


def observed_of_sources(
    connection: sa.Connection, sources: Iterable[str], *, other_than: str
) -> tuple[CheckedPrediction, ...]:
    """What other models predicted for the same measurements, in the order in which it came."""
    query = sa.select(observed.c.id, *_COLUMNS).where(observed.c.version != other_than)
    rows = sorted(selected(connection, query, observed.c.source, sources), key=lambda row: row.id)
    return tuple(CheckedPrediction(*row[1:]) for row in rows)


# Held: predictions for windows to come, and how well they held, in groups of bounded size; the only SQL on both.

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


def counts(connection: sa.Connection, ids: Collection[int], begin_s: float, end_s: float) -> dict[int, int]:
    """How many samples each of these series has from one time to before another; none is left out."""
    found = samples.flat(connection, ids, begin_s, end_s)
    return {number: count for number, _, count in samples.sums(found)}


def load(connection: sa.Connection) -> dict[WindowKey, WindowFigures]:
    """Every group."""
    query = sa.select(*_KEY, held.c.figures)
    return {WindowKey(*key): WindowFigures.from_json(stored) for *key, stored in connection.execute(query)}


def change(connection: sa.Connection) -> dict[WindowKey, WindowFigures]:
    """Every group, which no other writer changes before this transaction ends; do this first in it."""
    engine.alone_with(connection, "held")
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
