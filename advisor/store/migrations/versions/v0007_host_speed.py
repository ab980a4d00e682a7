"""What a host's disk and memory were measured to do."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.add_column("hosts", sa.Column("disk_mb_s", sa.Double()))
    op.add_column("hosts", sa.Column("mem_bw_mb_s", sa.Double()))
