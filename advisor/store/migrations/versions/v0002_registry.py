"""The registry of models: what the gate said of each, which one is scored beside the active one, who answered when."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ID = sa.String(length=255)
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_index(
        "uq_models_shadow",
        "models",
        ["status"],
        unique=True,
        sqlite_where=sa.text("status = 'shadow'"),
        postgresql_where=sa.text("status = 'shadow'"),
    )
    op.create_table(
        "verdicts",
        sa.Column("version", ID, nullable=False),
        sa.Column("verdict", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["version"], ["models.version"], name=op.f("fk_verdicts_version_models")),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_verdicts")),
    )
    activations = op.create_table(
        "activations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("before", ID, nullable=False),
        sa.Column("after", ID, nullable=False),
        sa.Column("cause", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_activations")),
    )
    # who answers now did so after the prior, as far as anybody knows: there is a way back from it
    active = op.get_bind().scalar(sa.text("SELECT version FROM models WHERE status = 'active'"))
    if active is not None:
        row = {"at": datetime.now(UTC), "before": "prior", "after": active, "cause": "activate"}
        op.bulk_insert(activations, [row])
