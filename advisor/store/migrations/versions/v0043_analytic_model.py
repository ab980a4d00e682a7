"""The analytic model's version is `analytic`, which was `prior`; columns say what they hold.

Stored answers keep what they say, for their reader knows both names. Predictions of windows that are still open are
dropped, as they are within minutes anyway.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

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


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
