"""What was learned of demand is kept as bytes: much of the time of learning went into JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import sqlalchemy as sa
from alembic import op

from models.profiling.demand_estimation import Tally
from models.profiling.tallies import Tallies

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

_AT_ONCE = 1_000


def upgrade() -> None:
    op.add_column("demands", sa.Column("state", sa.LargeBinary, nullable=False, server_default=""))
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":  # they are no smaller compressed
        op.execute("ALTER TABLE demands ALTER COLUMN state SET STORAGE EXTERNAL")
    rows = sa.text("SELECT instance, resource, tally FROM demands WHERE (instance, resource) > (:instance, :resource)"
                   " ORDER BY instance, resource LIMIT :most")  # fmt: skip
    put = sa.text("UPDATE demands SET state = :state WHERE instance = :instance AND resource = :resource")
    last = {"instance": "", "resource": ""}
    while found := connection.execute(rows, {**last, "most": _AT_ONCE}).all():
        plain = [json.loads(tally) if isinstance(tally, str) else tally for *_, tally in found]
        tallies = Tallies.of_tallies([_tally(one) for one in plain])
        tallies.added[:] = [math.nan if one.get("added") is None else one["added"] for one in plain]
        states = np.array(tallies.states(), object)
        keys = [{"instance": row.instance, "resource": row.resource} for row in found]
        connection.execute(put, [{**key, "state": state} for key, state in zip(keys, states, strict=True)])
        last = keys[-1]
    op.drop_column("demands", "tally")


def downgrade() -> None:
    raise NotImplementedError("a database is not brought back: restore the backup that was made before the upgrade")


def _tally(data: Mapping[str, Any]) -> Tally:
    plain = {name: data[name] for name in ("resource", "window_s", "n", "mean", "squares", "last")}
    found = Tally(**plain, lagged=list(data["lagged"]), shared=list(data["shared"]))
    found.bursts = list(data.get("bursts", found.bursts))  # not counted before they were learned
    if found.n:
        found.least, found.most = data["range"]
        found.first_s, found.last_s = data["times"]
        found.bins = {int(at): count for at, count in data["bins"]}
        found.sums, found.counts = list(data["sums"]), list(data["counts"])
    return found
