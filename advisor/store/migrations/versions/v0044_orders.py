"""Signed orders to the agents of hosts, and their reports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("made_at_s", sa.Double, nullable=False),
        sa.Column("expires_at_s", sa.Double, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("signature", sa.String(64), nullable=False),
        sa.Column("report", sa.Text),
        sa.Column("report_signature", sa.String(64)),
        sa.PrimaryKeyConstraint("id", name="pk_orders"),
    )
    op.create_index("ix_orders_host", "orders", ["host"])


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
