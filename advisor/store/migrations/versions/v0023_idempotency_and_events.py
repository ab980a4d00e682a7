"""What callers' idempotency keys were used for, and the entries of the audit log that are events found at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "idempotency_keys",
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("actor", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_begun_at"), "idempotency_keys", ["begun_at"])
    events = sa.text(
        "operation IN ('alarm.end', 'alarm.raise', 'host.delete', 'host.put', 'instance.delete', 'instance.put',"
        " 'inventory.announce', 'inventory.follow', 'inventory.put', 'model.activate', 'plan.answer',"
        " 'workload.delete', 'workload.put')"
    )
    op.create_index("ix_audit_events", "audit", ["id"], sqlite_where=events, postgresql_where=events)
