"""Samples in PostgreSQL are partitioned by day.

The table of before becomes the partition of everything up to the day after its newest sample: no row is copied.
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

_DAY_S = 86_400


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    newest_s = connection.scalar(sa.text("SELECT max(time_s) FROM samples"))
    if newest_s is None:
        op.execute("DROP TABLE samples")
        name = ""
    else:
        border = int(newest_s // _DAY_S + 1) * _DAY_S
        name = f"samples_before_{datetime.fromtimestamp(border, UTC):%Y%m%d}"
        op.execute(f"ALTER TABLE samples RENAME TO {name}")
        op.execute(f"ALTER TABLE {name} RENAME CONSTRAINT pk_samples TO pk_{name}")
    op.execute(
        "CREATE TABLE samples (series INTEGER NOT NULL, time_s DOUBLE PRECISION NOT NULL, "
        "value DOUBLE PRECISION NOT NULL, CONSTRAINT pk_samples PRIMARY KEY (series, time_s)) "
        "PARTITION BY RANGE (time_s)"
    )
    if name:
        op.execute(f"ALTER TABLE samples ATTACH PARTITION {name} FOR VALUES FROM (MINVALUE) TO ({border})")


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
