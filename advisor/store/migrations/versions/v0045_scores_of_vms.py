"""The scores of each VM over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "vm_scores",
        sa.Column("instance", sa.String(255), nullable=False),
        sa.Column("day", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("marks", sa.String(576), nullable=False),
        sa.PrimaryKeyConstraint("instance", "day", name="pk_vm_scores"),
    )
    op.create_index("ix_vm_scores_day", "vm_scores", ["day"])


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
