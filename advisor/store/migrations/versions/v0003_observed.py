"""Predictions beside what was measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ID = sa.String(length=255)


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "observed",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", ID, nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("target", sa.String(length=16), nullable=False),
        sa.Column("platform", ID, nullable=False),
        sa.Column("workload", ID, nullable=False),
        sa.Column("instance", ID, nullable=False),
        sa.Column("expected", sa.Double(), nullable=False),
        sa.Column("lower", sa.Double(), nullable=False),
        sa.Column("upper", sa.Double(), nullable=False),
        sa.Column("outside", sa.Boolean(), nullable=False),
        sa.Column("observed", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_observed")),
        sa.UniqueConstraint(
            "source", "instance", "target", "version", name=op.f("uq_observed_source_instance_target_version")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_observed_platform_id", "observed", ["platform", "id"])
    op.create_index("ix_observed_version_id", "observed", ["version", "id"])
