"""How long each instance is on its host, what was asked and told of it before, and how it fared."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "stays",
        sa.Column("instance", sa.String(length=255), nullable=False),
        sa.Column("since_s", sa.Double(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("ended_s", sa.Double(), nullable=True),
        sa.Column("looked_s", sa.Double(), nullable=False),
        sa.Column("recommendation", sa.String(length=255), nullable=True),
        sa.Column("told", sa.JSON(), nullable=True),
        sa.Column("fared", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("instance", "since_s", name=op.f("pk_stays")),
    )
    op.create_index(op.f("ix_stays_since_s"), "stays", ["since_s"])
