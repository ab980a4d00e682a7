"""CPUs that serve dedicated vCPUs only, and how many of an instance's vCPUs are dedicated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; nothing was dedicated before."""
    empty = sa.Column("dedicated_cpus", sa.JSON, nullable=False, server_default=sa.text("'[]'"))
    op.add_column("hosts", empty)
    op.add_column("instances", sa.Column("dedicated_vcpus", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
