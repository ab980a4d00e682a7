"""Sums of the windows that are not over, by host, where samples are kept in a time-series database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "open_windows",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("newest_s", sa.Double, nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_open_windows"),
    )


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
