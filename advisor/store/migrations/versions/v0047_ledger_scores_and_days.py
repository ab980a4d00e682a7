"""Between the first tables and these: facts of hosts, scores, the ledger of changes, orders, days of samples.

The analytic model's version is `analytic`, which was `prior`; columns say what they hold. Stored answers keep what
they say, for their reader knows both names. Predictions of windows that are still open are dropped, as they are within
minutes anyway. The samples of before become one partition of PostgreSQL, up to the day after the newest: no row is
copied.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0023"
branch_labels = None
depends_on = None

_ID = sa.String(255)
_TIME = sa.DateTime(timezone=True)
_DAY_S = 86_400
_OPERATIONS = (
    "operation IN ('alarm.end', 'alarm.raise', 'change.carry_out', 'change.freeze', 'change.measure', 'change.plan',"
    " 'change.thaw', 'change.undo', 'host.delete', 'host.put', 'instance.delete', 'instance.put',"
    " 'inventory.announce', 'inventory.follow', 'inventory.put', 'model.activate', 'plan.answer',"
    " 'workload.delete', 'workload.put')"
)
_NAMED = (
    ("activations", "before"),
    ("activations", "after"),
    ("held", "version"),
    ("observed", "version"),
    ("plans", "model_version"),
    ("recommendations", "model_version"),
)
_FARED = (
    ("newcomer", "new_vm"),
    ("told_windows", "predicted_windows"),
    ("told", "predicted"),
    ("contended_told", "contended_predicted"),
    ("wanted", "demanded"),
)
_VERDICTS = sa.table("verdicts", sa.column("version", sa.String), sa.column("verdict", sa.JSON))


def upgrade() -> None:
    _facts_of_hosts()
    op.add_column("instances", sa.Column("dedicated_vcpus", sa.Integer, nullable=False, server_default="0"))
    op.add_column("colocations", sa.Column("sender", sa.String(200), nullable=False, server_default=""))
    op.add_column("windows", sa.Column("level", sa.Integer, nullable=False, server_default="10"))
    op.create_index("ix_windows_level", "windows", ["level"])
    _scores()
    _ledger_of_changes()
    _present_names()
    _orders()
    op.create_table(
        "open_windows",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("newest_s", sa.Double, nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_open_windows"),
    )
    _days_of_samples()


def _facts_of_hosts() -> None:
    """Their CPUs by number, isolated, dedicated and by core; what their own work uses; clocks and disks."""
    for name in ("cpu_ids", "isolated_cpus"):
        op.add_column("hosts", sa.Column(name, sa.JSON, nullable=False, server_default="[]"))
    for name in ("dedicated_cpus", "siblings"):
        op.add_column("hosts", sa.Column(name, sa.JSON, nullable=False, server_default=sa.text("'[]'")))
    op.add_column("hosts", sa.Column("own_cpus", sa.Double, nullable=False, server_default="0"))
    for name in ("measured_own_cpus", "own_until_s", "second_thread", "turbo_mhz", "disk_iops"):
        op.add_column("hosts", sa.Column(name, sa.Double))


def _scores() -> None:
    """What was delivered to each instance in its last window, and scores of hosts, the cloud and VMs over time."""
    op.create_table(
        "deliveries",
        sa.Column("instance", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("time_s", sa.Double, nullable=False),
        sa.Column("delivered", sa.Double),
        sa.Column("stalled", sa.Double),
        sa.PrimaryKeyConstraint("instance", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_time_s", "deliveries", ["time_s"])
    op.create_table(
        "scores",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("time_s", sa.Double, nullable=False, autoincrement=False),
        sa.Column("mean", sa.Double, nullable=False),
        sa.Column("lowest", sa.Double, nullable=False),
        sa.Column("measured", sa.Integer, nullable=False),
        *(sa.Column(f"under_{edge}", sa.Integer, nullable=False) for edge in (20, 40, 60, 80, 100)),
        sa.PrimaryKeyConstraint("host", "time_s", name="pk_scores"),
    )
    op.create_index("ix_scores_time_s", "scores", ["time_s"])
    op.create_table(
        "host_memory",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("until_s", sa.Double, nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_memory"),
    )
    op.create_table(
        "vm_scores",
        sa.Column("instance", sa.String(255), nullable=False),
        sa.Column("day", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("marks", sa.String(576), nullable=False),
        sa.PrimaryKeyConstraint("instance", "day", name="pk_vm_scores"),
    )
    op.create_index("ix_vm_scores_day", "vm_scores", ["day"])


def _ledger_of_changes() -> None:
    """Rollouts with the ledger of what was done, and who may act now."""
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


def _present_names() -> None:
    """Names of models, columns and keys as they are now."""
    for name, column in _NAMED:
        table = sa.table(name, sa.column(column, sa.String))
        op.execute(table.update().where(table.c[column] == "prior").values({column: "analytic"}))
    op.execute(sa.table("watches").delete())
    for name in ("watches", "stays"):
        op.execute(f"ALTER TABLE {name} RENAME COLUMN told TO predicted")
    op.execute(f"UPDATE stays SET fared = {_renamed_keys()} WHERE fared IS NOT NULL")  # noqa: S608 - constants
    op.drop_index("ix_recommendations_told", "recommendations")
    answered = sa.text("outcome_at IS NOT NULL")
    op.create_index(
        "ix_recommendations_reported",
        "recommendations",
        ["id"],
        sqlite_where=answered,
        postgresql_where=answered,
    )
    connection = op.get_bind()
    for version, verdict in connection.execute(sa.select(_VERDICTS)).all():
        renamed = {**verdict, "figures": [_figures(one) for one in verdict.get("figures", ())]}
        op.execute(_VERDICTS.update().where(_VERDICTS.c.version == version).values(verdict=renamed))


def _renamed_keys() -> str:
    """The expression of `fared` with its present keys: numbers by key, so that text is replaced safely."""
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    value = "CAST(fared AS TEXT)" if on_postgresql else "fared"
    for before, now in _FARED:
        value = f"REPLACE({value}, '\"{before}\":', '\"{now}\":')"
    return f"CAST({value} AS JSON)" if on_postgresql else value


def _figures(before: dict[str, Any]) -> dict[str, Any]:
    """What the gate found for one target, with the comparison with the analytic model under its present name."""
    renamed = {"analytic" if name == "prior" else name: value for name, value in before.items()}
    if isinstance(renamed.get("analytic"), dict):
        renamed["analytic"] = {**renamed["analytic"], "against": "analytic"}
    return renamed


def _orders() -> None:
    """Signed orders to the agents of hosts, and their reports."""
    op.create_table(
        "orders",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("made_at_s", sa.Double, nullable=False),
        sa.Column("expires_at_s", sa.Double, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("signature", sa.String(64), nullable=False),
        sa.Column("report", sa.Text),
        sa.Column("report_signature", sa.String(64)),
        sa.PrimaryKeyConstraint("id", name="pk_orders"),
    )
    op.create_index("ix_orders_host", "orders", ["host"])


def _days_of_samples() -> None:
    """Samples in PostgreSQL are partitioned by day."""
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
