"""Whether something tells of a host again and again, so that its silence means something."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.add_column("hosts", sa.Column("reported", sa.Boolean(), nullable=False, server_default=sa.false()))
