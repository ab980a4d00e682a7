"""Demand as it was measured: what was learned of each instance, how busy everybody was, and what is told of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "demands",
        sa.Column("instance", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=16), nullable=False),
        sa.Column("until_s", sa.Double(), nullable=False),
        sa.Column("tally", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("instance", "resource", name=op.f("pk_demands")),
    )
    op.create_table(
        "demand_totals",
        sa.Column("time_s", sa.Double(), nullable=False, autoincrement=False),
        sa.Column("resource", sa.String(length=16), nullable=False),
        sa.Column("total", sa.Double(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("time_s", "resource", name=op.f("pk_demand_totals")),
    )
    op.add_column("instances", sa.Column("measured", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))
    op.add_column("instances", sa.Column("measured_at", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index(op.f("ix_instances_measured_at"), "instances", ["measured_at"])
