"""Roll-ups of old samples, and how far they reach; samples no longer refer to their series."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "rollups",
        sa.Column("series", sa.Integer(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("mean", sa.Double(), nullable=False),
        sa.Column("most", sa.Double(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("series", "time_s", name=op.f("pk_rollups")),
        sqlite_with_rowid=False,
    )
    retention = op.create_table(
        "retention",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("rolled_until_s", sa.Double(), nullable=False),
        sa.Column("holder", sa.String(length=64), nullable=False),
        sa.Column("held_until", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retention")),
    )
    op.bulk_insert(retention, [{"id": 1, "rolled_until_s": 0.0, "holder": "", "held_until": None}])
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("fk_samples_series_series", "samples")
        return
    op.create_table(  # SQLite drops no constraint of a table that is there
        "samples_anew",
        sa.Column("series", sa.Integer(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("series", "time_s", name=op.f("pk_samples")),
        sqlite_with_rowid=False,
    )
    op.execute("INSERT INTO samples_anew SELECT series, time_s, value FROM samples ORDER BY series, time_s")
    op.drop_table("samples")
    op.rename_table("samples_anew", "samples")
