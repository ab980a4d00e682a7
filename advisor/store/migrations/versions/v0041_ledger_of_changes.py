"""Rollouts with the ledger of what was done, and who may act now."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

_ID = sa.String(255)
_TIME = sa.DateTime(timezone=True)
_OPERATIONS = (
    "operation IN ('alarm.end', 'alarm.raise', 'change.carry_out', 'change.freeze', 'change.measure', 'change.plan',"
    " 'change.thaw', 'change.undo', 'host.delete', 'host.put', 'instance.delete', 'instance.put',"
    " 'inventory.announce', 'inventory.follow', 'inventory.put', 'model.activate', 'plan.answer',"
    " 'workload.delete', 'workload.put')"
)


def upgrade() -> None:
    op.create_table(
        "rollouts",
        sa.Column("id", _ID, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("source", _ID, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rollouts"),
    )
    for column in ("created_at", "source", "state"):
        op.create_index(f"ix_rollouts_{column}", "rollouts", [column])
    op.create_table(
        "rollout_lines",
        sa.Column("rollout", _ID, nullable=False),
        sa.Column("line", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("actor", _ID, nullable=False),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("change", sa.Integer),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout"], ["rollouts.id"], name="fk_rollout_lines_rollout_rollouts", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout", "line", name="pk_rollout_lines"),
    )
    op.create_index("ix_rollout_lines_event_at", "rollout_lines", ["event", "at"])
    op.create_table(
        "controls",
        sa.Column("name", sa.String(16), nullable=False),
        sa.Column("holder", _ID, nullable=False),
        sa.Column("until_s", sa.Double, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_controls"),
    )
    op.drop_index("ix_audit_events", "audit")
    where = sa.text(_OPERATIONS)
    op.create_index("ix_audit_events", "audit", ["id"], sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
