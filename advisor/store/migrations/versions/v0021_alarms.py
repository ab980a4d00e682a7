"""Where measured shares of CPU time lie below the predicted ones, by host."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "alarms",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("last_s", sa.Double(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_alarms")),
    )
