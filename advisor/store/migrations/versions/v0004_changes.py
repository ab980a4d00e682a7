"""Limits of latency, hosts of one's own, headroom of driver domains; what was changed at which generation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.add_column("hosts", sa.Column("driver_overcommit", sa.Double(), server_default="2.0", nullable=False))
    op.add_column("instances", sa.Column("max_latency_ratio", sa.Double()))
    op.add_column("instances", sa.Column("exclusive", sa.Boolean(), server_default=sa.false(), nullable=False))
    changes = op.create_table(
        "changes",
        sa.Column("noun", sa.String(length=16), nullable=False),
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("counter", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("noun", "id", name=op.f("pk_changes")),
    )
    op.create_index("ix_changes_counter", "changes", ["counter"])
    # what was changed before is not known: the log reaches back to now
    now = op.get_bind().scalar(sa.text("SELECT value FROM counters WHERE name = 'inventory'"))
    op.bulk_insert(changes, [{"noun": "begin", "id": "", "counter": now or 0}])
