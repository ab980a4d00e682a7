"""The numbers of a host's CPUs, where they have gaps, and which of them are isolated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("cpu_ids", "isolated_cpus"):
        op.add_column("hosts", sa.Column(name, sa.JSON, nullable=False, server_default="[]"))


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
