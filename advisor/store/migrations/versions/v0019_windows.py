"""Windows kept for training: who wanted and got how much beside whom."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "windows",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("company", sa.String(length=64), nullable=False),
        sa.Column("ends_s", sa.Double(), nullable=False),
        sa.Column("observed", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("host", "company", name=op.f("pk_windows")),
    )
    op.create_index(op.f("ix_windows_ends_s"), "windows", ["ends_s"])
