"""What a pending answer changes for who is on its host already, and for the driver domain there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.add_column("pending", sa.Column("changes", sa.JSON(), server_default="{}", nullable=False))
    op.add_column("pending", sa.Column("driver_cpus", sa.JSON()))
