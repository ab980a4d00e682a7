"""What probes of hosts, instances and pairs found last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "probes",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("instance", sa.String(length=255), nullable=False),
        sa.Column("peer", sa.String(length=255), nullable=False),
        sa.Column("probe", sa.String(length=255), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["host"], ["hosts.id"], name=op.f("fk_probes_host_hosts"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("host", "instance", "peer", "probe", name=op.f("pk_probes")),
    )
    op.create_index(op.f("ix_probes_taken_at"), "probes", ["taken_at"])
