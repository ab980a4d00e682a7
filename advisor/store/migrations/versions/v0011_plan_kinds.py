"""What a plan was asked for, and the generation of the inventory that it was made for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.add_column("plans", sa.Column("kind", sa.String(length=16), server_default="admit", nullable=False))
    op.add_column("plans", sa.Column("generation", sa.BigInteger()))
    op.create_index("ix_plans_kind_id", "plans", ["kind", "id"])
