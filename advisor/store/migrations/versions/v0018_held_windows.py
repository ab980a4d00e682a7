"""What was predicted for windows that are to come, and how such predictions held."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "watches",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("ends_s", sa.Double(), nullable=False),
        sa.Column("scene", sa.String(length=64), nullable=False),
        sa.Column("told", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("host", "ends_s", name=op.f("pk_watches")),
    )
    op.create_table(
        "held",
        sa.Column("version", sa.String(length=255), nullable=False),
        sa.Column("platform", sa.String(length=255), nullable=False),
        sa.Column("level", sa.String(length=16), nullable=False),
        sa.Column("question", sa.String(length=16), nullable=False),
        sa.Column("contended", sa.Boolean(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("last_s", sa.Double(), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("version", "platform", "level", "question", "contended", name=op.f("pk_held")),
    )
    op.create_index(op.f("ix_held_number"), "held", ["number"])
