"""Checks the metric names of profiles, so that a mistyped name is reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import numpy as np

from advisor.domain import PlacementRequest, listed
from advisor.errors import InvalidInput
from advisor.snapshot import ClusterSnapshot
from models.data.scene import ProfileTable
from models.features.feature_matrix import probes_needed
from models.physics import prior
from models.prediction import Predictor
from profiler.metrics import ADDITIONAL_UNITS, BY_NAME, join_key, split_key

# Metrics that the agent and the lab write beside the eight; they are never reported.
WRITTEN = ADDITIONAL_UNITS.keys() | {
    "mem_bw_mb_s", "throughput", "runtime_s", "latency_mean_ms", "latency_p95_ms", "jitter_ms", "timeouts_percent",
    "load_generator_cpu",
    "grant_entries", "grant_entries_most", "slab_objects",
    "grant_entries_at_rest", "grant_entries_most_at_rest", "slab_objects_at_rest",
}  # fmt: skip
SWEEP = "bubble_"  # what the lab calls its sweeps (models.features.sensitivity_curves)
MAX_NAMED = 4


def check(request: PlacementRequest, predictor: Predictor) -> None:
    """Reject a request whose profile has no metric that the predictor knows; InvalidInput lists the known ones."""
    keys = request.profile.metrics if request.profile is not None else ()
    unknown = _unknown(keys, predictor)
    if keys and len(unknown) == len(keys):
        known = ", ".join(sorted(prior.METRICS))
        message = f"nothing in the profile is known: {_hinted(unknown, predictor)}; metrics are {known}"
        raise InvalidInput(message, field="profile")


def notes(snapshot: ClusterSnapshot, request: PlacementRequest, predictor: Predictor) -> tuple[str, ...]:
    """Notes about unknown metrics in the request's profile and in the profiles of the cloud."""
    texts = []
    if request.profile is not None and (unknown := _unknown(request.profile.metrics, predictor)):
        texts.append(_sentence(unknown, predictor, "the profile of the question"))
    table = snapshot.scenes.table
    if columns := _unknown(table.columns, predictor):
        used = set(np.unique(snapshot.scenes.profile[snapshot.scenes.present]).tolist())
        used |= {row for (_, name), row in table.rows.items() if name == request.instance.workload}
        texts += _of_workloads(table, columns, sorted(used), predictor)
    return tuple(texts)


def of_probes(snapshot: ClusterSnapshot, hosts: Iterable[str], predictor: Predictor) -> tuple[str, ...]:
    """A note about hosts of which no probe measured what the predictor learned from; none where it needs no probes."""
    if not probes_needed(predictor.metrics):
        return ()
    bare = [name for name in hosts if (at := snapshot.index(name)) is not None and not snapshot.hosts[at].probed]
    if not bare:
        return ()
    what = f"Model {predictor.version} learned from probes of hosts, and no result that counts is known of"
    return (f"{what} {listed(bare, MAX_NAMED)}: usual ones are assumed there.",)


def _of_workloads(
    table: ProfileTable, columns: Sequence[str], rows: Iterable[int], predictor: Predictor
) -> Iterable[str]:
    """One sentence for all workloads in these rows that have such metrics."""
    held = {
        table.names[row]: [key for key in columns if np.isfinite(table.column(key)[row])]
        for row in sorted(rows, key=lambda row_number: table.names[row_number])
    }
    owners = [name for name, keys in held.items() if keys]
    if owners:
        keys = [key for key in columns if any(key in mine for mine in held.values())]
        yield _sentence(keys, predictor, f"the profile{'s' if len(owners) > 1 else ''} of {listed(owners, MAX_NAMED)}")


def _sentence(keys: Sequence[str], predictor: Predictor, where: str) -> str:
    verb = "changes" if len(keys) == 1 else "change"
    return f"Unknown to model {predictor.version}, {_hinted(keys, predictor)} in {where} {verb} nothing."


def _unknown(keys: Iterable[str], predictor: Predictor) -> list[str]:
    """Sorted metrics that neither this predictor nor the prior reads and that no tool of this project writes."""
    read = {*prior.METRICS, *predictor.metrics}
    return sorted(key for key in {join_key(*split_key(key)) for key in keys} if key not in read and not _written(key))


def _written(key: str) -> bool:
    _, name = split_key(key)
    return name in BY_NAME or name in WRITTEN or name.startswith(SWEEP)


def _hinted(keys: Iterable[str], predictor: Predictor) -> str:
    """The first few names, each with the known name that may be meant."""
    known = [*prior.METRICS, *predictor.metrics, *BY_NAME, *WRITTEN]
    near = {key: get_close_matches(key, known, n=1, cutoff=0.75) for key in keys}
    hinted = [f"{key} (is {matches[0]} meant?)" if matches else key for key, matches in near.items()]
    return listed(hinted, MAX_NAMED)
