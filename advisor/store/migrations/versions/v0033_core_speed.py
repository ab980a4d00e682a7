"""What a second hyperthread adds to a core, and the highest clock of a core."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("second_thread", "turbo_mhz"):
        op.add_column("hosts", sa.Column(name, sa.Double))


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
