"""What was delivered to each instance in its last window, and the scores of hosts and the cloud over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "deliveries",
        sa.Column("instance", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("time_s", sa.Double, nullable=False),
        sa.Column("delivered", sa.Double),
        sa.Column("stalled", sa.Double),
        sa.PrimaryKeyConstraint("instance", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_time_s", "deliveries", ["time_s"])
    op.create_table(
        "scores",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("time_s", sa.Double, nullable=False, autoincrement=False),
        sa.Column("mean", sa.Double, nullable=False),
        sa.Column("lowest", sa.Double, nullable=False),
        sa.Column("measured", sa.Integer, nullable=False),
        *(sa.Column(f"under_{edge}", sa.Integer, nullable=False) for edge in (20, 40, 60, 80, 100)),
        sa.PrimaryKeyConstraint("host", "time_s", name="pk_scores"),
    )
    op.create_index("ix_scores_time_s", "scores", ["time_s"])
    op.create_table(
        "host_memory",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("until_s", sa.Double, nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_memory"),
    )


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
