"""The first tables: inventory, observations, answers and the registry of models."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ID = sa.String(length=255)
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """There is no downgrade: the way back is the backup made before."""
    op.create_table(
        "colocations",
        sa.Column("run", ID, nullable=False),
        sa.Column("platform", ID, nullable=False),
        sa.Column("repeat", ID, nullable=False),
        sa.Column("observed", sa.JSON(), nullable=False),
        sa.Column("recorded_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("run", "platform", "repeat", name=op.f("pk_colocations")),
    )
    op.create_index(op.f("ix_colocations_recorded_at"), "colocations", ["recorded_at"])
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )
    op.create_table(
        "hosts",
        sa.Column("id", ID, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("pcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Double(), nullable=False),
        sa.Column("threads_per_core", sa.Integer(), nullable=False),
        sa.Column("cpu_mhz", sa.Double()),
        sa.Column("l2_mb", sa.Double()),
        sa.Column("l3_mb", sa.Double()),
        sa.Column("nic_mbit", sa.Double()),
        sa.Column("disk_gb", sa.Double()),
        sa.Column("disk_kind", sa.String(length=16), nullable=False),
        sa.Column("numa", sa.JSON(), nullable=False),
        sa.Column("driver_cpus", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("cpu_overcommit", sa.Double(), nullable=False),
        sa.Column("memory_overcommit", sa.Double(), nullable=False),
        sa.Column("platform", ID, nullable=False),
        sa.Column("seen_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hosts")),
    )
    op.create_table(
        "models",
        sa.Column("version", ID, nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("origin", sa.String(length=32), nullable=False),
        sa.Column("card", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_models")),
    )
    op.create_index(
        "uq_models_active",
        "models",
        ["status"],
        unique=True,
        sqlite_where=sa.text("status = 'active'"),
        postgresql_where=sa.text("status = 'active'"),
    )
    op.create_table(
        "recommendations",
        sa.Column("id", ID, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("instance", ID, nullable=False),
        sa.Column("host", ID),
        sa.Column("model_version", ID, nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("outcome_host", ID),
        sa.Column("outcome_ratios", sa.JSON()),
        sa.Column("outcome_at", TIME),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recommendations")),
    )
    op.create_index(op.f("ix_recommendations_created_at"), "recommendations", ["created_at"])
    op.create_index(op.f("ix_recommendations_instance"), "recommendations", ["instance"])
    op.create_table(
        "series",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("host", ID, nullable=False),
        sa.Column("instance", ID, nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("metric", ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint("host", "instance", "scope", "metric", name=op.f("uq_series_host_instance_scope_metric")),
    )
    op.create_table(
        "workloads",
        sa.Column("name", ID, nullable=False),
        sa.Column("platform", ID, nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("origin", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("name", "platform", name=op.f("pk_workloads")),
    )
    op.create_table(
        "instances",
        sa.Column("id", ID, nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Double(), nullable=False),
        sa.Column("disk_gb", sa.Double(), nullable=False),
        sa.Column("host", ID),
        sa.Column("workload", ID),
        sa.Column("load", sa.Double(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("service", sa.String(length=16), nullable=False),
        sa.Column("min_throughput_ratio", sa.Double()),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["host"], ["hosts.id"], name=op.f("fk_instances_host_hosts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instances")),
    )
    op.create_index(op.f("ix_instances_host"), "instances", ["host"])
    op.create_table(
        "pending",
        sa.Column("instance", ID, nullable=False),
        sa.Column("host", ID, nullable=False),
        sa.Column("recommendation", ID, nullable=False),
        sa.Column("placed", sa.JSON(), nullable=False),
        sa.Column("profile", sa.JSON()),
        sa.Column("expires_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["host"], ["hosts.id"], name=op.f("fk_pending_host_hosts"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("instance", name=op.f("pk_pending")),
    )
    op.create_index(op.f("ix_pending_host"), "pending", ["host"])
    op.create_table(
        "samples",
        sa.Column("series", sa.Integer(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["series"], ["series.id"], name=op.f("fk_samples_series_series"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("series", "time_s", name=op.f("pk_samples")),
        sqlite_with_rowid=False,
    )
