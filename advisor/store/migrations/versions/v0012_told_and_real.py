"""Answers that were told of, and those that were no dry runs, are found without going over all the others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    table = sa.table("recommendations", sa.column("dry_run", sa.Boolean), sa.column("outcome_at"))
    told, real = table.c.outcome_at.is_not(None), sa.not_(table.c.dry_run)
    op.create_index("ix_recommendations_told", "recommendations", ["id"], sqlite_where=told, postgresql_where=told)
    op.create_index("ix_recommendations_real", "recommendations", ["id"], sqlite_where=real, postgresql_where=real)
