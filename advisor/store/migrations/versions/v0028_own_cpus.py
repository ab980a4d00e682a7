"""The CPUs that a host's own work uses, as given and as measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hosts", sa.Column("own_cpus", sa.Double, nullable=False, server_default="0"))
    for name in ("measured_own_cpus", "own_until_s"):
        op.add_column("hosts", sa.Column(name, sa.Double))


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
