"""Roll-ups: five-minute means of samples that are no longer kept one by one, and who makes them; the only SQL on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from advisor.settings import CLOCK_SKEW
from advisor.store import locks
from advisor.store.samples import samples, series, series_around
from advisor.store.schema import UtcTime, metadata
from advisor.store.statements import chunks

BUCKET_S = 300.0  # five of the windows that an agent pushes
NO_HOLDER = ""

rollups = sa.Table(
    "rollups",
    metadata,
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time_s", sa.Double, primary_key=True),  # when the five minutes ended, as samples have the end of windows
    sa.Column("mean", sa.Double, nullable=False),
    sa.Column("most", sa.Double, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),  # of samples
    sqlite_with_rowid=False,
)
retention = sa.Table(  # one row
    "retention",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    # No sample from before is taken: it is not known whether it is in a roll-up already, and none may count twice.
    sa.Column("rolled_until_s", sa.Double, nullable=False),
    sa.Column("holder", sa.String(64), nullable=False),  # the pass that rolls up
    # A holder that was killed is followed by another then; without a holder: when the next is due.
    sa.Column("held_until", UtcTime),
)


@dataclass(frozen=True, slots=True)
class Removed:
    """What a step did: samples that became roll-ups, roll-ups that expired, series of which nothing is left, and
    recommendations and plans that expired."""

    samples: int = 0
    rollups: int = 0
    series: int = 0
    recommendations: int = 0
    plans: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


def bucket(
    connection: sa.Connection, time_s: sa.ColumnElement[float], width_s: float = BUCKET_S
) -> sa.ColumnElement[float]:
    """The end of the five minutes, or other `width_s`, that a time lies in; a time on the border begins the next."""
    # SQLite's CAST cuts the fraction off, PostgreSQL's rounds; times are never negative
    share = time_s / width_s
    whole = sa.func.floor(share) if connection.dialect.name == "postgresql" else sa.cast(share, sa.BigInteger)
    return sa.type_coerce((whole + 1.0) * width_s, sa.Double)


def rolled_until(connection: sa.Connection) -> float:
    """The time, in seconds since the epoch, up to which samples have been rolled up; 0 = none yet.

    It stays where it is until this transaction, which adds samples, ends.
    """
    locks.shared(connection, "border")
    return connection.scalar(sa.select(retention.c.rolled_until_s)) or 0.0


def hold(
    connection: sa.Connection, holder: str, now: datetime, until: datetime, cut_s: float, *, early: bool = False
) -> bool:
    """Become the one pass that rolls up, and take no samples from before `cut_s` any more.

    False = another one is, or it is not time yet, which `early` overlooks.
    """
    locks.alone(connection, "border")  # samples on their way from before it are stored first
    mine = [holder, NO_HOLDER] if early else [holder]
    held_until, rolled_until_s, now_s = retention.c.held_until, retention.c.rolled_until_s, now.timestamp()
    # No process holds it for longer than from now until `until`: whoever did so had a clock that was ahead.
    free = sa.or_(retention.c.holder.in_(mine), held_until.is_(None), held_until < now, held_until > until + CLOCK_SKEW)
    # The same clock may have moved the border into the future, from where it would keep every sample out.
    later = sa.case((rolled_until_s > now_s, now_s), (rolled_until_s < cut_s, cut_s), else_=rolled_until_s)
    values = {"holder": holder, "held_until": until, "rolled_until_s": later}
    return connection.execute(sa.update(retention).where(free).values(values)).rowcount == 1


def let_go(connection: sa.Connection, holder: str, next_at: datetime | None) -> None:
    """Let another pass roll up, not before `next_at`; nothing where another one holds it already."""
    here = retention.c.holder == holder
    connection.execute(sa.update(retention).where(here).values(holder=NO_HOLDER, held_until=next_at))


def series_after(connection: sa.Connection, last: int, most: int) -> tuple[int, ...]:
    """The next series by number."""
    query = sa.select(series.c.id).where(series.c.id > last).order_by(series.c.id).limit(most)
    return tuple(connection.scalars(query))


def oldest(connection: sa.Connection, ids: Sequence[int]) -> float | None:
    """When the first sample of these series was taken; looks up each one's, for nothing orders samples by time."""
    first = sa.select(sa.func.min(samples.c.time_s)).where(samples.c.series == series.c.id).scalar_subquery()
    times = sa.select(first.label("time_s")).where(series.c.id.in_(ids)).subquery()
    oldest_s: float | None = connection.scalar(sa.select(sa.func.min(times.c.time_s)))
    return oldest_s


def roll(connection: sa.Connection, ids: Sequence[int], begin_s: float, end_s: float) -> int:
    """Turn samples of these series from `begin_s` to before `end_s`, both borders, into roll-ups; returns how many."""
    # A pass that outlasted its lease may still be at it: what it adds up must be deleted before anybody else looks.
    locks.alone(connection, "rollups")
    here = (samples.c.series.in_(ids), samples.c.time_s >= begin_s, samples.c.time_s < end_s)
    ends = bucket(connection, samples.c.time_s).label("ends")
    whole = (sa.func.avg(samples.c.value), sa.func.max(samples.c.value), sa.func.count())
    means = sa.select(samples.c.series, ends, *whole).where(*here).group_by(samples.c.series, ends)
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(rollups).from_select([column.name for column in rollups.columns], means)
    # What a clock that was ahead rolled up too early is joined by the samples that come later.
    old, new = rollups.c, statement.excluded
    joined = {
        "mean": (old.mean * old.number + new.mean * new.number) / (old.number + new.number),
        "most": sa.case((old.most > new.most, old.most), else_=new.most),
        "number": old.number + new.number,
    }
    connection.execute(statement.on_conflict_do_update(index_elements=["series", "time_s"], set_=joined))
    return connection.execute(sa.delete(samples).where(*here)).rowcount


def expire(connection: sa.Connection, ids: Sequence[int], before_s: float) -> int:
    """Delete roll-ups of these series that ended before a time; returns how many."""
    return connection.execute(sa.delete(rollups).where(rollups.c.series.in_(ids), rollups.c.time_s < before_s)).rowcount


def drop_empty(connection: sa.Connection, ids: Sequence[int]) -> int:
    """Delete those of these series of which nothing is kept; returns how many."""
    has_rows = [sa.exists().where(table.c.series == series.c.id) for table in (samples, rollups)]
    here = sa.and_(series.c.id.in_(ids), *(~exists for exists in has_rows))
    if connection.scalar(sa.select(series.c.id).where(here).limit(1)) is None:
        return 0
    locks.alone(connection, "series")  # no other writer adds to one of them now
    return connection.execute(sa.delete(series).where(here)).rowcount


def reach_s(connection: sa.Connection, instance_id: str, since_s: float) -> float:
    """Seconds between the first and the last sample that a profile would be made of; inf where some are rolled up."""
    first, last = math.inf, -math.inf
    for part in chunks(sorted(series_around(connection, instance_id))):
        here = (rollups.c.series.in_(part), rollups.c.time_s >= since_s)
        if connection.execute(sa.select(rollups.c.series).where(*here).limit(1)).first() is not None:
            return math.inf
        ends = sa.select(sa.func.min(samples.c.time_s), sa.func.max(samples.c.time_s))
        begin, end = connection.execute(ends.where(samples.c.series.in_(part), samples.c.time_s >= since_s)).one()
        if begin is not None:
            first, last = min(first, begin), max(last, end)
    return max(last - first, 0.0)
