"""The analytic model's version is `analytic`, which was `prior`.

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
_VERDICTS = sa.table("verdicts", sa.column("version", sa.String), sa.column("verdict", sa.JSON))


def upgrade() -> None:
    for name, column in _NAMED:
        table = sa.table(name, sa.column(column, sa.String))
        op.execute(table.update().where(table.c[column] == "prior").values({column: "analytic"}))
    op.execute(sa.table("watches").delete())
    connection = op.get_bind()
    for version, verdict in connection.execute(sa.select(_VERDICTS)).all():
        renamed = {**verdict, "figures": [_figures(one) for one in verdict.get("figures", ())]}
        op.execute(_VERDICTS.update().where(_VERDICTS.c.version == version).values(verdict=renamed))


def _figures(before: dict[str, Any]) -> dict[str, Any]:
    """What the gate found for one target, with the comparison with the analytic model under its present name."""
    renamed = {"analytic" if name == "prior" else name: value for name, value in before.items()}
    if isinstance(renamed.get("analytic"), dict):
        renamed["analytic"] = {**renamed["analytic"], "against": "analytic"}
    return renamed


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")
