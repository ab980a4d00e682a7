"""How contended a kept window was, so that calm ones do not push out the others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("windows", sa.Column("level", sa.Integer, nullable=False, server_default="10"))
    op.create_index("ix_windows_level", "windows", ["level"])


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
