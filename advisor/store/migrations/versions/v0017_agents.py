"""After how long the silence of a host counts; and tokens that speak for one host only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.add_column("hosts", sa.Column("patience_s", sa.Double()))
    op.add_column("tokens", sa.Column("host", sa.String(length=255), nullable=False, server_default=""))
