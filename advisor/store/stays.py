"""Stays: since when each instance is on its host, what was predicted before, how it fared; the only SQL on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from advisor.domain import MoveSeen
from advisor.store import engine
from advisor.store.answers import recommendations
from advisor.store.rollups import BUCKET_S
from advisor.store.schema import ID, VALUE, chunks, metadata, selected, upsert

MOST_ENDED = 20_000  # rows of instances that have left; a cloud of short jobs forgets sooner
BEFORE = 0.0  # `since_s` of instances there before the service looked

stays = sa.Table(
    "stays",
    metadata,
    sa.Column("instance", ID, primary_key=True),
    sa.Column("since_s", sa.Double, primary_key=True),  # when the inventory first showed it there
    sa.Column("host", ID, nullable=False),
    sa.Column("ended_s", sa.Double),  # NULL = it is there
    sa.Column("looked_s", sa.Double, nullable=False),  # end of the last window that was looked at
    sa.Column("recommendation", ID),  # what was answered about it before it came, NULL = no question was asked
    sa.Column("predicted", VALUE),  # NULL = it was there before the service looked, or that was long ago
    sa.Column("fared", VALUE),
    sa.Index("ix_stays_since_s", "since_s"),
)
_OPEN = stays.c.ended_s.is_(None)


@dataclass(frozen=True, slots=True)
class Stay:
    """One instance on one host. `predicted` (what was predicted) and `fared` are plain JSON, None = its arrival was not
    seen."""

    instance: str
    since_s: float
    host: str
    ended_s: float | None = None
    looked_s: float = 0.0
    recommendation: str | None = None
    predicted: Mapping[str, Any] | None = None
    fared: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AskedBefore:
    """The head of a stored answer: the instance, and its first host, None = nothing fitted."""

    id: str
    created_at: datetime
    instance: str
    host: str | None
    dry_run: bool


def seats(connection: sa.Connection) -> dict[str, str]:
    """The host of every instance that was there at the last look."""
    query = sa.select(stays.c.instance, stays.c.host).where(_OPEN)
    return {row.instance: row.host for row in connection.execute(query)}


def times_on(connection: sa.Connection, host: str, instances: Iterable[str]) -> dict[str, list[tuple[float, float]]]:
    """When these instances were on a host: from when until when, for ever where the last look found them there."""
    query = sa.select(stays.c.instance, stays.c.since_s, stays.c.ended_s).where(stays.c.host == host)
    times: dict[str, list[tuple[float, float]]] = {}
    for row in selected(connection, query, stays.c.instance, instances):
        times.setdefault(row.instance, []).append((row.since_s, math.inf if row.ended_s is None else row.ended_s))
    return times


def change(connection: sa.Connection) -> dict[str, str]:
    """The same, which no other writer changes before this transaction ends; do this first in it."""
    engine.alone_with(connection, "stays")
    return seats(connection)


def hosts_known(connection: sa.Connection) -> set[str]:
    """Hosts on which an instance was seen."""
    return set(connection.scalars(sa.select(stays.c.host).distinct()))


def begin(connection: sa.Connection, arrivals: Sequence[Stay]) -> None:
    """Store stays that have begun."""
    upsert(connection, stays, [asdict(stay) for stay in arrivals])


def end(connection: sa.Connection, instances: Iterable[str], now_s: float) -> None:
    """End the stays of these instances."""
    for part in chunks(sorted(set(instances))):
        connection.execute(sa.update(stays).where(stays.c.instance.in_(part), _OPEN).values(ended_s=now_s))


def reopen(connection: sa.Connection, stay: Stay, since_s: float) -> bool:
    """Go on with the last stay of an instance on its host that ended since a time; False when there is none."""
    here = (stays.c.instance == stay.instance, stays.c.host == stay.host)
    last = sa.select(sa.func.max(stays.c.since_s)).where(*here, stays.c.ended_s >= since_s).scalar_subquery()
    return connection.execute(sa.update(stays).where(*here, stays.c.since_s == last).values(ended_s=None)).rowcount > 0


def hosts_to_look_at(connection: sa.Connection, since_s: float, ends_s: float, most: int) -> list[str]:
    """Hosts with instances `to_look_at`, those that wait longest first."""
    waited = sa.func.min(stays.c.looked_s)
    query = sa.select(stays.c.host).where(*_due(since_s, ends_s)).group_by(stays.c.host)
    return list(connection.scalars(query.order_by(waited, stays.c.host).limit(most)))


def to_look_at(connection: sa.Connection, host: str, since_s: float, ends_s: float) -> tuple[Stay, ...]:
    """Stays on a host that began since a time and before the window that ends at `ends_s`, which is to be looked at."""
    query = sa.select(stays).where(stays.c.host == host, *_due(since_s, ends_s)).order_by(stays.c.instance)
    return tuple(Stay(**row) for row in connection.execute(query).mappings())


def _due(since_s: float, ends_s: float) -> tuple[sa.ColumnElement[bool], ...]:
    begins_s = ends_s - BUCKET_S
    came = (stays.c.since_s >= since_s, stays.c.since_s <= begins_s, stays.c.looked_s < ends_s)
    return _OPEN, *came, stays.c.predicted.is_not(None)


def looked(connection: sa.Connection, stay: Stay, ends_s: float, fared: Mapping[str, Any]) -> bool:
    """Store how it has fared up to a window; False where another process was faster."""
    here = (stays.c.instance == stay.instance, stays.c.since_s == stay.since_s, stays.c.looked_s == stay.looked_s)
    statement = sa.update(stays).where(*here).values(looked_s=ends_s, fared=dict(fared))
    return connection.execute(statement).rowcount == 1


def moves(connection: sa.Connection, since_s: float) -> tuple[MoveSeen, ...]:
    """Moves from one host to another since a time, the oldest first."""
    lately = sa.select(stays.c.instance).where(sa.or_(stays.c.since_s >= since_s, stays.c.ended_s >= since_s))
    query = sa.select(stays.c.instance, stays.c.since_s, stays.c.host, stays.c.ended_s)
    query = query.where(stays.c.instance.in_(lately)).order_by(stays.c.instance, stays.c.since_s)
    seen: list[MoveSeen] = []
    for instance, rows in groupby(connection.execute(query), key=attrgetter("instance")):
        there = list(rows)
        seen += [
            MoveSeen(instance, before.host, after.host, after.since_s)
            for before, after in pairwise(there)
            if before.host != after.host
        ]
        last, still = there[-1], next((stay for stay in there if stay.ended_s is None), None)
        if still is not None and last.ended_s is not None:  # it came back to a host that it had not left for long
            seen.append(MoveSeen(instance, last.host, still.host, last.ended_s))
    return tuple(sorted((move for move in seen if move.at_s >= since_s), key=lambda move: (move.at_s, move.instance)))


def came_and_went(connection: sa.Connection, now_s: float, longest_s: float) -> tuple[int, int, float]:
    """How many instances came, and how many went, in how many seconds up to now: since the service looked, at most the
    longest. One that moves neither comes nor goes."""
    looked = connection.scalar(sa.select(sa.func.min(stays.c.since_s)).where(stays.c.since_s > BEFORE))
    if looked is None:
        return 0, 0, 0.0
    begin_s = max(looked, now_s - longest_s)
    is_there = sa.func.max(sa.case((stays.c.ended_s.is_(None), 1), else_=0))
    query = sa.select(sa.func.min(stays.c.since_s), is_there, sa.func.max(stays.c.ended_s)).group_by(stays.c.instance)
    rows = connection.execute(query).all()
    came = sum(first >= begin_s for first, _, _ in rows)
    went = sum(not there and last is not None and last >= begin_s for _, there, last in rows)
    return came, went, max(now_s - begin_s, 0.0)


def since(connection: sa.Connection, since_s: float) -> tuple[Stay, ...]:
    """Stays whose beginning was seen since a time, the newest first."""
    query = sa.select(stays).where(stays.c.since_s >= since_s, stays.c.predicted.is_not(None))
    query = query.order_by(stays.c.since_s.desc(), stays.c.instance)
    return tuple(Stay(**row) for row in connection.execute(query).mappings())


def asked_about(connection: sa.Connection, instances: Iterable[str], since: datetime) -> dict[str, AskedBefore]:
    """The newest answer about each of these since a time; one that was no dry run goes before one that was."""
    newest: dict[str, AskedBefore] = {}
    for part in chunks(sorted(set(instances))):
        for answer in _heads(connection, recommendations.c.instance.in_(part), recommendations.c.created_at >= since):
            former = newest.get(answer.instance)
            if former is None or (answer.dry_run, -answer.created_at.timestamp()) <= (
                former.dry_run,
                -former.created_at.timestamp(),
            ):
                newest[answer.instance] = answer
    return newest


def asked(connection: sa.Connection, since: datetime) -> tuple[AskedBefore, ...]:
    """Every answer since a time that was no dry run, the oldest first."""
    return tuple(_heads(connection, recommendations.c.created_at >= since, sa.not_(recommendations.c.dry_run)))


def expire(connection: sa.Connection, before_s: float) -> None:
    """Delete stays that ended before a time, and the oldest beyond MOST_ENDED; of those that began before it and go on,
    delete what was predicted and how they fared."""
    connection.execute(sa.delete(stays).where(stays.c.ended_s < before_s))
    old = (_OPEN, stays.c.since_s < before_s, stays.c.predicted.is_not(None))
    connection.execute(sa.update(stays).where(*old).values(predicted=None, fared=None))
    newest = sa.select(stays.c.ended_s).where(stays.c.ended_s.is_not(None)).order_by(stays.c.ended_s.desc())
    border = connection.scalar(newest.offset(MOST_ENDED).limit(1))
    if border is not None:
        connection.execute(sa.delete(stays).where(stays.c.ended_s <= border))


def _heads(connection: sa.Connection, *here: sa.ColumnElement[bool]) -> list[AskedBefore]:
    table = recommendations.c
    query = sa.select(table.id, table.created_at, table.instance, table.host, table.dry_run).where(*here)
    return [AskedBefore(**row) for row in connection.execute(query.order_by(table.id)).mappings()]
