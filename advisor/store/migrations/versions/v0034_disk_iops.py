"""How many requests per second the disk of a host serves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hosts", sa.Column("disk_iops", sa.Double))


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
