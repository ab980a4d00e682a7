"""The tables of version 0.1.0."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from advisor.store.schema import metadata

revision = "0023"  # the last of those that were never in a release: a database of then goes on as it is
down_revision = None
branch_labels = None
depends_on = None

ID = sa.String(255)
TIME = sa.DateTime(timezone=True)
_IS_EVENT = sa.text(
    "operation IN ('alarm.end', 'alarm.raise', 'host.delete', 'host.put', 'instance.delete', 'instance.put',"
    " 'inventory.announce', 'inventory.follow', 'inventory.put', 'model.activate', 'plan.answer',"
    " 'workload.delete', 'workload.put')"
)
# As they were then: what the code says of tables now may be what a later migration makes of them.
_tables = sa.MetaData(naming_convention=metadata.naming_convention)


def _where(condition: sa.ColumnElement[bool] | sa.TextClause) -> dict[str, Any]:
    return {"sqlite_where": condition, "postgresql_where": condition}


sa.Table(
    "activations",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", TIME, nullable=False),
    sa.Column("before", ID, nullable=False),
    sa.Column("after", ID, nullable=False),
    sa.Column("cause", sa.String(16), nullable=False),
)
sa.Table(
    "alarms",
    _tables,
    sa.Column("host", ID, primary_key=True),
    sa.Column("last_s", sa.Double, nullable=False),
    sa.Column("state", sa.JSON, nullable=False),
)
sa.Table(
    "audit",
    _tables,
    sa.Column("id", ID, primary_key=True),
    sa.Column("at", TIME, nullable=False),
    sa.Column("actor", ID, nullable=False),
    sa.Column("request_id", ID, nullable=False),
    sa.Column("operation", sa.String(32), nullable=False),
    sa.Column("objects", sa.JSON, nullable=False),
    sa.Column("detail", sa.JSON, nullable=False),
    sa.Index("ix_audit_actor_id", "actor", "id"),
    sa.Index("ix_audit_events", "id", **_where(_IS_EVENT)),
)
_changes = sa.Table(
    "changes",
    _tables,
    sa.Column("noun", sa.String(16), primary_key=True),
    sa.Column("id", ID, primary_key=True),
    sa.Column("counter", sa.BigInteger, nullable=False, index=True),
)
sa.Table(
    "colocations",
    _tables,
    sa.Column("run", ID, primary_key=True),
    sa.Column("platform", ID, primary_key=True),
    sa.Column("repeat", ID, primary_key=True),
    sa.Column("observed", sa.JSON, nullable=False),
    sa.Column("recorded_at", TIME, nullable=False, index=True),
)
sa.Table(
    "counters",
    _tables,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
sa.Table(
    "demand_totals",
    _tables,
    sa.Column("time_s", sa.Double, primary_key=True, autoincrement=False),
    sa.Column("resource", sa.String(16), primary_key=True),
    sa.Column("total", sa.Double, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
)
sa.Table(
    "demands",
    _tables,
    sa.Column("instance", ID, primary_key=True),
    sa.Column("resource", sa.String(16), primary_key=True),
    sa.Column("until_s", sa.Double, nullable=False),
    sa.Column("tally", sa.JSON, nullable=False),
)
sa.Table(
    "held",
    _tables,
    sa.Column("version", ID, primary_key=True),
    sa.Column("platform", ID, primary_key=True),
    sa.Column("level", sa.String(16), primary_key=True),
    sa.Column("question", sa.String(16), primary_key=True),
    sa.Column("contended", sa.Boolean, primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("last_s", sa.Double, nullable=False),
    sa.Column("figures", sa.JSON, nullable=False),
    sa.Index("ix_held_number", "number"),
)
sa.Table(
    "hosts",
    _tables,
    sa.Column("id", ID, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("pcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Double, nullable=False),
    sa.Column("threads_per_core", sa.Integer, nullable=False),
    sa.Column("cpu_mhz", sa.Double),
    sa.Column("l2_mb", sa.Double),
    sa.Column("l3_mb", sa.Double),
    sa.Column("nic_mbit", sa.Double),
    sa.Column("disk_gb", sa.Double),
    sa.Column("disk_kind", sa.String(16), nullable=False),
    sa.Column("numa", sa.JSON, nullable=False),
    sa.Column("driver_cpus", sa.JSON, nullable=False),
    sa.Column("labels", sa.JSON, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("cpu_overcommit", sa.Double, nullable=False),
    sa.Column("memory_overcommit", sa.Double, nullable=False),
    sa.Column("platform", ID, nullable=False),
    sa.Column("seen_at", TIME, nullable=False),
    sa.Column("driver_overcommit", sa.Double, nullable=False, server_default="2.0"),
    sa.Column("disk_mb_s", sa.Double),
    sa.Column("mem_bw_mb_s", sa.Double),
    sa.Column("driver_weight", sa.Integer, nullable=False, server_default="256"),
    sa.Column("reported", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("patience_s", sa.Double),
)
sa.Table(
    "idempotency_keys",
    _tables,
    sa.Column("actor", ID, primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("request", sa.String(64), nullable=False),
    sa.Column("begun_at", TIME, nullable=False, index=True),
    sa.Column("answer", sa.JSON),
)
sa.Table(
    "models",
    _tables,
    sa.Column("version", ID, primary_key=True),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("created_at", TIME, nullable=False),
    sa.Column("origin", sa.String(32), nullable=False),
    sa.Column("card", sa.JSON, nullable=False),
    sa.Index("uq_models_active", "status", unique=True, **_where(sa.text("status = 'active'"))),
    sa.Index("uq_models_shadow", "status", unique=True, **_where(sa.text("status = 'shadow'"))),
)
sa.Table(
    "observed",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("source", sa.String(64), nullable=False),
    sa.Column("time", TIME, nullable=False),
    sa.Column("version", ID, nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("target", sa.String(16), nullable=False),
    sa.Column("platform", ID, nullable=False),
    sa.Column("workload", ID, nullable=False),
    sa.Column("instance", ID, nullable=False),
    sa.Column("expected", sa.Double, nullable=False),
    sa.Column("lower", sa.Double, nullable=False),
    sa.Column("upper", sa.Double, nullable=False),
    sa.Column("outside", sa.Boolean, nullable=False),
    sa.Column("observed", sa.Double, nullable=False),
    sa.UniqueConstraint("source", "instance", "target", "version"),
    sa.Index("ix_observed_platform_id", "platform", "id"),
    sa.Index("ix_observed_version_id", "version", "id"),
    sqlite_autoincrement=True,
)
sa.Table(
    "plans",
    _tables,
    sa.Column("id", ID, primary_key=True),
    sa.Column("created_at", TIME, nullable=False, index=True),
    sa.Column("model_version", ID, nullable=False),
    sa.Column("answer", sa.JSON, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False, server_default="admit"),
    sa.Column("generation", sa.BigInteger),
    sa.Index("ix_plans_kind_id", "kind", "id"),
)
sa.Table(
    "recommendations",
    _tables,
    sa.Column("id", ID, primary_key=True),
    sa.Column("created_at", TIME, nullable=False, index=True),
    sa.Column("instance", ID, nullable=False, index=True),
    sa.Column("host", ID),
    sa.Column("model_version", ID, nullable=False),
    sa.Column("dry_run", sa.Boolean, nullable=False),
    sa.Column("answer", sa.JSON, nullable=False),
    sa.Column("outcome_host", ID),
    sa.Column("outcome_ratios", sa.JSON),
    sa.Column("outcome_at", TIME),
    sa.Index("ix_recommendations_real", "id", **_where(sa.not_(sa.column("dry_run", sa.Boolean)))),
    sa.Index("ix_recommendations_told", "id", **_where(sa.text("outcome_at IS NOT NULL"))),
)
_retention = sa.Table(
    "retention",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("rolled_until_s", sa.Double, nullable=False),
    sa.Column("holder", sa.String(64), nullable=False),
    sa.Column("held_until", TIME),
)
sa.Table(
    "rollups",
    _tables,
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time_s", sa.Double, primary_key=True),
    sa.Column("mean", sa.Double, nullable=False),
    sa.Column("most", sa.Double, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)
sa.Table(
    "samples",
    _tables,
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time_s", sa.Double, primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
    sqlite_with_rowid=False,
)
sa.Table(
    "series",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("host", ID, nullable=False),
    sa.Column("instance", ID, nullable=False),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("metric", ID, nullable=False),
    sa.UniqueConstraint("host", "instance", "scope", "metric"),
)
sa.Table(
    "sessions",
    _tables,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("actor", ID, nullable=False),
    sa.Column("sealed", sa.Text),
    sa.Column("began_at", TIME, nullable=False),
    sa.Column("expires_at", TIME, nullable=False, index=True),
)
sa.Table(
    "stays",
    _tables,
    sa.Column("instance", ID, primary_key=True),
    sa.Column("since_s", sa.Double, primary_key=True),
    sa.Column("host", ID, nullable=False),
    sa.Column("ended_s", sa.Double),
    sa.Column("looked_s", sa.Double, nullable=False),
    sa.Column("recommendation", ID),
    sa.Column("told", sa.JSON),
    sa.Column("fared", sa.JSON),
    sa.Index("ix_stays_since_s", "since_s"),
)
sa.Table(
    "tokens",
    _tables,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("name", ID, nullable=False),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("created_at", TIME, nullable=False),
    sa.Column("expires_at", TIME),
    sa.Column("revoked_at", TIME),
    sa.Column("host", ID, nullable=False, server_default=""),
)
sa.Table(
    "watches",
    _tables,
    sa.Column("host", ID, primary_key=True),
    sa.Column("ends_s", sa.Double, primary_key=True),
    sa.Column("scene", sa.String(64), nullable=False),
    sa.Column("told", sa.JSON, nullable=False),
)
sa.Table(
    "windows",
    _tables,
    sa.Column("host", ID, primary_key=True),
    sa.Column("company", sa.String(64), primary_key=True),
    sa.Column("ends_s", sa.Double, nullable=False, index=True),
    sa.Column("observed", sa.JSON, nullable=False),
)
sa.Table(
    "workloads",
    _tables,
    sa.Column("name", ID, primary_key=True),
    sa.Column("platform", ID, primary_key=True),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("origin", sa.String(32), nullable=False),
)
sa.Table(
    "audit_objects",
    _tables,
    sa.Column("object", ID, primary_key=True),
    sa.Column("audit", ID, sa.ForeignKey("audit.id", ondelete="CASCADE"), primary_key=True, index=True),
    sqlite_with_rowid=False,
)
sa.Table(
    "instances",
    _tables,
    sa.Column("id", ID, primary_key=True),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Double, nullable=False),
    sa.Column("disk_gb", sa.Double, nullable=False),
    sa.Column("host", ID, sa.ForeignKey("hosts.id"), index=True),
    sa.Column("workload", ID),
    sa.Column("load", sa.Double, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("service", sa.String(16), nullable=False),
    sa.Column("min_throughput_ratio", sa.Double),
    sa.Column("labels", sa.JSON, nullable=False),
    sa.Column("max_latency_ratio", sa.Double),
    sa.Column("max_time_short", sa.Double),
    sa.Column("exclusive", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("demand", sa.JSON, nullable=False, server_default=sa.text("'{}'")),
    sa.Column("measured", sa.JSON, nullable=False, server_default=sa.text("'{}'")),
    sa.Column("measured_at", sa.BigInteger, nullable=False, server_default="0", index=True),
)
sa.Table(
    "pending",
    _tables,
    sa.Column("instance", ID, primary_key=True),
    sa.Column("host", ID, sa.ForeignKey("hosts.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("recommendation", ID, nullable=False),
    sa.Column("placed", sa.JSON, nullable=False),
    sa.Column("profile", sa.JSON),
    sa.Column("expires_at", TIME, nullable=False),
    sa.Column("changes", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("driver_cpus", sa.JSON),
)
sa.Table(
    "probes",
    _tables,
    sa.Column("host", ID, sa.ForeignKey("hosts.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("instance", ID, primary_key=True),
    sa.Column("peer", ID, primary_key=True),
    sa.Column("probe", ID, primary_key=True),
    sa.Column("taken_at", TIME, nullable=False, index=True),
    sa.Column("result", sa.JSON, nullable=False),
)
sa.Table(
    "verdicts",
    _tables,
    sa.Column("version", ID, sa.ForeignKey("models.version"), primary_key=True),
    sa.Column("verdict", sa.JSON, nullable=False),
)


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    _tables.create_all(op.get_bind())
    op.bulk_insert(_changes, [{"noun": "begin", "id": "", "counter": 0}])  # nothing was changed before
    op.bulk_insert(_retention, [{"id": 1, "rolled_until_s": 0.0, "holder": "", "held_until": None}])
