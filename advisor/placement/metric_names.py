"""Which metrics of a profile mean something to who answers, so that a name with a typing error does not pass unseen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

import numpy as np

from advisor.domain import PlacementRequest
from advisor.errors import InvalidInput
from advisor.snapshot import ClusterSnapshot
from models.data.scene import ProfileTable
from models.physics import prior
from models.prediction import Predictor
from profiler.metrics import ADDITIONAL_UNITS, BY_NAME, join_key, split_key

# What agent and lab write beside the eight, whoever reads it: it is no typing error, and is not told.
WRITTEN = ADDITIONAL_UNITS.keys() | {
    "mem_bw_mb_s", "throughput", "runtime_s", "latency_mean_ms", "latency_p95_ms", "jitter_ms", "timeouts_percent",
    "load_generator_cpu",
}  # fmt: skip
SWEEP = "bubble_"  # what the lab calls its sweeps (models.features.sensitivity_curves)
MOST_NAMED = 4


def check(request: PlacementRequest, predictor: Predictor) -> None:
    """Refuse a profile of the question of which whoever answers knows nothing; InvalidInput names what it may hold."""
    keys = request.profile.metrics if request.profile is not None else ()
    unknown = _unknown(keys, predictor)
    if keys and len(unknown) == len(keys):
        known = ", ".join(sorted(prior.METRICS))
        message = f"nothing in the profile is known: {_listed(_hinted(unknown, predictor))}; metrics are {known}"
        raise InvalidInput(message, field="profile")


def notes(snapshot: ClusterSnapshot, request: PlacementRequest, predictor: Predictor) -> tuple[str, ...]:
    """What to say of metrics that whoever answers does not know, in the question's profile and in those in use."""
    found = []
    if request.profile is not None and (unknown := _unknown(request.profile.metrics, predictor)):
        found.append(_sentence(unknown, predictor, "the profile of the question"))
    table = snapshot.scenes.table
    if columns := _unknown(table.columns, predictor):
        used = set(np.unique(snapshot.scenes.profile[snapshot.scenes.present]).tolist())
        used |= {row for (_, name), row in table.rows.items() if name == request.instance.workload}
        found += _of_workloads(table, columns, sorted(used), predictor)
    return tuple(found)


def _of_workloads(
    table: ProfileTable, columns: Sequence[str], rows: Iterable[int], predictor: Predictor
) -> Iterable[str]:
    """One sentence for all the workloads in these rows that have such metrics."""
    held = {
        table.names[row]: [key for key in columns if np.isfinite(table.column(key)[row])]
        for row in sorted(rows, key=lambda one: table.names[one])
    }
    owners = [name for name, keys in held.items() if keys]
    if owners:
        keys = [key for key in columns if any(key in mine for mine in held.values())]
        yield _sentence(keys, predictor, f"the profile{'s' if len(owners) > 1 else ''} of {_listed(owners)}")


def _sentence(keys: Sequence[str], predictor: Predictor, where: str) -> str:
    verb = "changes" if len(keys) == 1 else "change"
    return f"Unknown to model {predictor.version}, {_listed(_hinted(keys, predictor))} in {where} {verb} nothing."


def _unknown(keys: Iterable[str], predictor: Predictor) -> list[str]:
    """Those that neither this predictor nor the prior reads and that no tool of ours writes, in order."""
    read = {*prior.METRICS, *predictor.metrics}
    return sorted(key for key in {join_key(*split_key(key)) for key in keys} if key not in read and not _written(key))


def _written(key: str) -> bool:
    _, name = split_key(key)
    return name in BY_NAME or name in WRITTEN or name.startswith(SWEEP)


def _hinted(keys: Iterable[str], predictor: Predictor) -> list[str]:
    """Each with the known name that it may stand for."""
    known = [*prior.METRICS, *predictor.metrics, *BY_NAME, *WRITTEN]
    near = {key: get_close_matches(key, known, n=1, cutoff=0.75) for key in keys}
    return [f"{key} (is {found[0]} meant?)" if found else key for key, found in near.items()]


def _listed(names: Collection[str]) -> str:
    """The first few, and how many more there are."""
    few = list(names)[:MOST_NAMED]
    more = len(names) - len(few)
    return ", ".join(few) + (f" and {more} more" if more else "")
