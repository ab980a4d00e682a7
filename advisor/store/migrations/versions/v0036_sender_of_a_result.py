"""Who sent a co-location: no sender's results count for more than a few."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("colocations", sa.Column("sender", sa.String(200), nullable=False, server_default=""))


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
