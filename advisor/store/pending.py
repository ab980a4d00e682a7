"""Pending answers: instances just advised to a host, which count there until the inventory shows them or time is up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from advisor.domain import Instance, IsolationSettings, WorkloadProfile, codec
from advisor.settings import CLOCK_SKEW
from advisor.store.hosts import hosts
from advisor.store.schema import ID, VALUE, UtcTime, metadata
from advisor.store.statements import among, chunks, upsert

pending = sa.Table(
    "pending",
    metadata,
    sa.Column("instance", ID, primary_key=True),  # a second answer for the same instance replaces the first
    sa.Column("host", ID, sa.ForeignKey(hosts.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("recommendation", ID, nullable=False),
    sa.Column("placed", VALUE, nullable=False),  # the instance as advised: on its host, with its settings
    sa.Column("profile", VALUE),  # what the question said of its workload, where it was no named one
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Column("changes", VALUE, nullable=False, server_default="{}"),
    sa.Column("driver_cpus", VALUE),
)


@dataclass(frozen=True, slots=True)
class Pending:
    """One answer that the inventory does not show yet; `placed.host` is the advised host. Without a `recommendation` a
    scheduler placed the instance by itself, and reported it.

    `changes` are the settings that the answer gives to residents of that host, `driver_cpus` the pCPUs that it gives to
    the driver domain, None = as they are.
    """

    recommendation: str
    placed: Instance
    profile: WorkloadProfile | None
    expires_at: datetime
    changes: Mapping[str, IsolationSettings] = field(default_factory=dict)
    driver_cpus: tuple[int, ...] | None = None

    @property
    def host(self) -> str:
        """The advised host."""
        return self.placed.host or ""


def hold(connection: sa.Connection, answers: Sequence[Pending]) -> None:
    """Keep answers; IntegrityError when a host is gone."""
    rows = [{"instance": answer.placed.id, "host": answer.host, **codec.columns(answer)} for answer in answers]
    upsert(connection, pending, rows)


def drop(connection: sa.Connection, instance_ids: Iterable[str]) -> bool:
    """Forget answers, since the inventory shows these instances or they are gone; whether there were any."""
    deletes = [sa.delete(pending).where(pending.c.instance.in_(part)) for part in chunks(sorted(set(instance_ids)))]
    return sum(connection.execute(delete).rowcount for delete in deletes) > 0


def purge(connection: sa.Connection, now: datetime, reserve: timedelta) -> None:
    """Delete what does not hold its host any more."""
    connection.execute(sa.delete(pending).where(sa.not_(_holds(now, reserve))))


def load_all(
    connection: sa.Connection, now: datetime, reserve: timedelta, known: Iterable[Pending] = ()
) -> tuple[Pending, ...]:
    """What holds its host now, by instance; `reserve` is for how long an answer does. Of those that are `known` from
    before nothing else is read: an answer about an instance that replaces another one ends later."""
    former = {(answer.placed.id, answer.host, answer.recommendation, answer.expires_at): answer for answer in known}
    columns = pending.c.instance, pending.c.host, pending.c.recommendation, pending.c.expires_at
    query = sa.select(*columns).where(_holds(now, reserve)).order_by(pending.c.instance)
    by_instance = {row.instance: former.get(tuple(row)) for row in connection.execute(query)}
    new = [name for name, answer in by_instance.items() if answer is None]
    by_instance |= {row["instance"]: codec.decode(Pending, row) for row in among(connection, pending.c.instance, new)}
    return tuple(answer for answer in by_instance.values() if answer is not None)


def answered_since(connection: sa.Connection, since: datetime, reserve: timedelta) -> bool:
    """Whether an answer was held since then, rather than what a scheduler reported by itself."""
    later = sa.and_(pending.c.recommendation != "", pending.c.expires_at > since + reserve)
    return connection.execute(sa.select(pending.c.instance).where(later).limit(1)).first() is not None


def _holds(now: datetime, reserve: timedelta) -> sa.ColumnElement[bool]:
    """Not expired; what lasts longer than anything held now was held by a clock that was ahead."""
    return sa.and_(pending.c.expires_at > now, pending.c.expires_at <= now + reserve + CLOCK_SKEW)
