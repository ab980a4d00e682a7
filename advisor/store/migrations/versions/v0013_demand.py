"""What an instance demands over time, as it was given with it, and the weight of a host's driver domain."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.add_column("instances", sa.Column("demand", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))
    op.add_column("hosts", sa.Column("driver_weight", sa.Integer(), nullable=False, server_default="256"))
