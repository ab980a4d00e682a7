"""Rollouts, the ledger of what was done, who may act, and signed orders to agents; the only SQL on these.

Lines of the ledger are added and never changed; an order and its report go once read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from advisor.domain import LedgerLine, Page, Rollout, RolloutState, codec
from advisor.store import engine
from advisor.store.schema import ID, VALUE, UtcTime, metadata, page, upsert

Control = Literal["lease", "freeze"]

rollouts = sa.Table(
    "rollouts",
    metadata,
    sa.Column("id", ID, primary_key=True),  # sorts by time
    sa.Column("created_at", UtcTime, nullable=False, index=True),
    sa.Column("source", ID, nullable=False, index=True),
    sa.Column("state", sa.String(16), nullable=False, index=True),  # as the lines have it, to find those under way
    sa.Column("body", VALUE, nullable=False),  # the whole Rollout
)
lines = sa.Table(
    "rollout_lines",
    metadata,
    sa.Column("rollout", ID, sa.ForeignKey(rollouts.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("line", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("actor", ID, nullable=False),
    sa.Column("event", sa.String(32), nullable=False),
    sa.Column("change", sa.Integer),  # NULL = about the whole rollout
    sa.Column("detail", VALUE, nullable=False),
    sa.Index("ix_rollout_lines_event_at", "event", "at"),
)
controls = sa.Table(
    "controls",
    metadata,
    sa.Column("name", sa.String(16), primary_key=True),  # a Control
    sa.Column("holder", ID, nullable=False),
    sa.Column("until_s", sa.Double, nullable=False),
    sa.Column("detail", VALUE, nullable=False),
)


def add(connection: sa.Connection, rollout: Rollout) -> None:
    """Store a rollout; Conflict where one of this id is there."""
    row = {"id": rollout.id, "created_at": rollout.created_at, "source": rollout.source, "state": "planned"}
    connection.execute(sa.insert(rollouts), {**row, "body": rollout})


def get(connection: sa.Connection, rollout_id: str) -> Rollout | None:
    """A rollout, None = there is none such."""
    body = connection.scalar(sa.select(rollouts.c.body).where(rollouts.c.id == rollout_id))
    return None if body is None else codec.decode(Rollout, body)


def append(connection: sa.Connection, rollout_id: str, line: LedgerLine, state: RolloutState) -> None:
    """Add a line, and keep the state that the rollout has with it; Conflict where another writer was faster."""
    connection.execute(sa.insert(lines), {"rollout": rollout_id, **codec.columns(line)})
    connection.execute(sa.update(rollouts).where(rollouts.c.id == rollout_id).values(state=state))


def of(connection: sa.Connection, rollout_id: str) -> tuple[LedgerLine, ...]:
    """The lines of a rollout, the oldest first."""
    rows = connection.execute(sa.select(lines).where(lines.c.rollout == rollout_id).order_by(lines.c.line)).mappings()
    return tuple(_line(row) for row in rows)


def list_page(
    connection: sa.Connection, *, state: RolloutState | None, cursor: str | None, limit: int
) -> Page[Rollout]:
    """Newest first; those of one state."""
    query = sa.select(rollouts.c.id, rollouts.c.body)
    if state is not None:
        query = query.where(rollouts.c.state == state)
    return page(
        connection, query, [rollouts.c.id], lambda row: codec.decode(Rollout, row["body"]), cursor=cursor, limit=limit,
        newest_first=True,
    )  # fmt: skip


def in_states(connection: sa.Connection, states: frozenset[RolloutState], most: int) -> tuple[str, ...]:
    """Ids of rollouts in these states, the oldest first, so many at most."""
    query = sa.select(rollouts.c.id).where(rollouts.c.state.in_(sorted(states))).order_by(rollouts.c.id).limit(most)
    return tuple(connection.scalars(query))


def unmeasured(connection: sa.Connection, most: int) -> tuple[str, ...]:
    """Ids of rollouts that were carried out and not measured since, the oldest first, so many at most."""
    counts = [
        sa.select(sa.func.count()).where(lines.c.rollout == rollouts.c.id, lines.c.event == event).scalar_subquery()
        for event in ("measured", "continued")
    ]
    query = sa.select(rollouts.c.id).where(rollouts.c.state == "carried_out", counts[0] <= counts[1])
    return tuple(connection.scalars(query.order_by(rollouts.c.id).limit(most)))


def verdicts(connection: sa.Connection) -> dict[str, int]:
    """How many measurements of rollouts came to each verdict."""
    verdict = lines.c.detail["verdict"].as_string()
    query = sa.select(verdict.label("verdict"), sa.func.count().label("number"))
    rows = connection.execute(query.where(lines.c.event == "measured").group_by(verdict))
    return {row.verdict: row.number for row in rows if row.verdict}


def of_sources(connection: sa.Connection, sources: Sequence[str], most: int) -> tuple[str, ...]:
    """Ids of rollouts with one of these sources, the newest first, so many at most."""
    query = sa.select(rollouts.c.id).where(rollouts.c.source.in_(sources)).order_by(rollouts.c.id.desc()).limit(most)
    return tuple(connection.scalars(query))


def sources_like(connection: sa.Connection, start: str, most: int) -> tuple[str, ...]:
    """Sources of rollouts that begin so, each once, so many at most."""
    query = sa.select(rollouts.c.source).where(rollouts.c.source.startswith(start, autoescape=True))
    return tuple(connection.scalars(query.distinct().order_by(rollouts.c.source).limit(most)))


def numbers(connection: sa.Connection) -> dict[str, int]:
    """How many rollouts are in each state."""
    query = sa.select(rollouts.c.state, sa.func.count().label("number")).group_by(rollouts.c.state)
    return {row.state: row.number for row in connection.execute(query)}


def applied_since(connection: sa.Connection, since: datetime) -> tuple[tuple[datetime, str, int], ...]:
    """When which changes began to be applied since a time: (time, rollout, number of the change)."""
    query = sa.select(lines.c.at, lines.c.rollout, lines.c.change)
    query = query.where(lines.c.event == "applying", lines.c.at >= since).order_by(lines.c.at)
    return tuple((row.at, row.rollout, row.change) for row in connection.execute(query))


def take_lease(connection: sa.Connection, holder: str, now_s: float, lasts_s: float) -> str:
    """Take or extend the one lease; who else holds it, empty = it is the caller's."""
    engine.alone_with(connection, "controls")
    row = connection.execute(sa.select(controls).where(controls.c.name == "lease")).one_or_none()
    # Held for longer than any process holds it: by a clock that was ahead.
    held = row is not None and row.holder and now_s < row.until_s <= now_s + 2 * lasts_s
    if row is not None and held and row.holder != holder:
        return str(row.holder)
    _put(connection, "lease", holder, now_s + lasts_s, {})
    return ""


def drop_lease(connection: sa.Connection, holder: str) -> None:
    """Let another controller act at once."""
    here = sa.and_(controls.c.name == "lease", controls.c.holder == holder)
    connection.execute(sa.delete(controls).where(here))


def control(connection: sa.Connection, name: Control) -> Mapping[str, Any] | None:
    """The row of a control as `holder`, `until_s` and `detail`; None = there is none."""
    row = connection.execute(sa.select(controls).where(controls.c.name == name)).mappings().one_or_none()
    return None if row is None else dict(row)


def freeze(connection: sa.Connection, actor: str, at: datetime, reason: str) -> None:
    """Let nothing be applied from now on."""
    _put(connection, "freeze", actor, at.timestamp(), {"reason": reason})


def thaw(connection: sa.Connection) -> bool:
    """Let changes be applied again; False = they could be."""
    return connection.execute(sa.delete(controls).where(controls.c.name == "freeze")).rowcount > 0


def expire(connection: sa.Connection, before: datetime, most: int) -> int:
    """Delete rollouts at their end from before a time, the oldest first and so many at most; returns how many went."""
    ended = rollouts.c.state.in_(["planned", "carried_out", "taken_back"])
    expired = sa.select(rollouts.c.id).where(rollouts.c.created_at < before, ended).order_by(rollouts.c.created_at)
    ids = list(connection.scalars(expired.limit(most)))
    connection.execute(sa.delete(lines).where(lines.c.rollout.in_(ids)))
    return connection.execute(sa.delete(rollouts).where(rollouts.c.id.in_(ids))).rowcount


def _put(connection: sa.Connection, name: Control, holder: str, until_s: float, detail: Mapping[str, Any]) -> None:
    upsert(connection, controls, [{"name": name, "holder": holder, "until_s": until_s, "detail": dict(detail)}])


def _line(row: sa.RowMapping) -> LedgerLine:
    return LedgerLine(**{name: value for name, value in row.items() if name != "rollout"})


AT_ONCE = 100
_KEPT_S = 3600.0  # after its end, an order that no controller took away goes

orders = sa.Table(
    "orders",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("host", ID, nullable=False, index=True),
    sa.Column("made_at_s", sa.Double, nullable=False),
    sa.Column("expires_at_s", sa.Double, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("signature", sa.String(64), nullable=False),
    sa.Column("report", sa.Text),  # NULL = there is none yet
    sa.Column("report_signature", sa.String(64)),
)


@dataclass(frozen=True, slots=True)
class SignedText:
    """An order or the report on it, as its writer signed it."""

    order: str
    text: str
    signature: str


def add_order(connection: sa.Connection, order: SignedText, host: str, made_at_s: float, expires_at_s: float) -> None:
    """Let an order wait for the agent of a host; what was left behind long ago goes."""
    connection.execute(sa.delete(orders).where(orders.c.expires_at_s < made_at_s - _KEPT_S))
    row = {"id": order.order, "host": host, "made_at_s": made_at_s, "expires_at_s": expires_at_s}
    connection.execute(sa.insert(orders), {**row, "text": order.text, "signature": order.signature})


def waiting(connection: sa.Connection, host: str, now_s: float) -> tuple[SignedText, ...]:
    """Orders of a host without a report that are not over, the oldest first."""
    here = (orders.c.host == host, orders.c.report.is_(None), orders.c.expires_at_s > now_s)
    query = sa.select(orders.c.id, orders.c.text, orders.c.signature).where(*here)
    rows = connection.execute(query.order_by(orders.c.made_at_s, orders.c.id).limit(AT_ONCE))
    return tuple(SignedText(*row) for row in rows)


def report(connection: sa.Connection, host: str, reports: Sequence[SignedText]) -> int:
    """Keep the reports on orders of this host, in place of earlier ones; returns how many orders were there."""
    return sum(
        connection.execute(
            sa.update(orders)
            .where(orders.c.id == one.order, orders.c.host == host)
            .values(report=one.text, report_signature=one.signature)
        ).rowcount
        for one in reports
    )


def reported(connection: sa.Connection, order: str) -> SignedText | None:
    """The report on an order; None = there is none yet."""
    query = sa.select(orders.c.report, orders.c.report_signature).where(orders.c.id == order)
    row = connection.execute(query).one_or_none()
    return None if row is None or row.report is None else SignedText(order, row.report, row.report_signature)


def remove(connection: sa.Connection, order: str) -> None:
    """Take an order away, so that no agent gets it any more."""
    connection.execute(sa.delete(orders).where(orders.c.id == order))
