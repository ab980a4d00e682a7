"""Signed orders that wait for the agent of a host, and its reports; both go once read. The only SQL on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from advisor.store.schema import ID, metadata

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


def add(connection: sa.Connection, order: SignedText, host: str, made_at_s: float, expires_at_s: float) -> None:
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
