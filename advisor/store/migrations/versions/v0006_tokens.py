"""Tokens of those who may ask, and the log of who changed or was told what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

ID = sa.String(length=255)


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", ID, nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    op.create_table(
        "audit",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", ID, nullable=False),
        sa.Column("request_id", ID, nullable=False),
        sa.Column("operation", sa.String(length=32), nullable=False),
        sa.Column("objects", sa.JSON(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_actor_id", "audit", ["actor", "id"])
    op.create_table(
        "audit_objects",
        sa.Column("object", ID, nullable=False),
        sa.Column("audit", ID, nullable=False),
        sa.ForeignKeyConstraint(["audit"], ["audit.id"], name=op.f("fk_audit_objects_audit_audit"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("object", "audit", name=op.f("pk_audit_objects")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_audit_objects_audit", "audit_objects", ["audit"])
