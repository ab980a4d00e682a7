"""Requests: what no cloud could satisfy is refused, and names are taken out for the cache."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from typing import TypeVar

import numpy as np

from advisor.domain import (
    Candidate,
    Effect,
    Instance,
    MitigationStep,
    PlacementRequest,
    Recommendation,
    Rejection,
    Scene,
    listed,
)
from advisor.errors import InvalidInput
from advisor.render import check_labels
from advisor.snapshot import ClusterSnapshot
from advisor.validation import check_declared, check_unique, check_value, misfit
from models.data.demand_classes import stem_of
from models.data.scene import INSTANCE, ProfileTable
from models.features.feature_matrix import probes_needed
from models.physics import prior
from models.prediction import Predictor
from profiler.host_kinds import HOST_KINDS
from profiler.metrics import ADDITIONAL_UNITS, BY_NAME, join_key, split_key
from profiler.observed import MAX_CPUS

# Checks the metric names of profiles, so that a mistyped name is reported.

# Metrics that the agent and the lab write beside the eight; they are never reported.
WRITTEN = ADDITIONAL_UNITS.keys() | {
    "mem_bw_mb_s", "throughput", "runtime_s", "latency_mean_ms", "latency_p95_ms", "jitter_ms", "timeouts_percent",
    "load_generator_cpu",
    "grant_entries", "grant_entries_most", "slab_objects",
    "grant_entries_at_rest", "grant_entries_most_at_rest", "slab_objects_at_rest",
}  # fmt: skip
SWEEP = "bubble_"  # what the lab calls its sweeps (models.features.feature_matrix)
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


# Checks placement requests and scenes: what no cloud could satisfy is refused with the name of its field.


def check_request(request: PlacementRequest) -> None:
    """Refuse what the types let through; InvalidInput names the field."""
    check_value(request)
    check_declared(request)
    _check_constraints(request)
    if request.commands:
        _check_labels(request.instance)
    pinning = request.instance.settings.pinning
    if pinning is not None and len(pinning.cpus) > request.instance.vcpus:
        message = f"the pinning names {len(pinning.cpus)} vCPUs, the instance has {request.instance.vcpus}"
        raise InvalidInput(message, field="pinning")
    highest = max((cpu for cpus in pinning.cpus for cpu in cpus), default=0) if pinning else 0
    if highest >= MAX_CPUS:
        message = f"pinned to pCPU {highest}, no host has more than {MAX_CPUS} pCPUs"
        raise InvalidInput(message, field="pinning")


def _check_labels(instance: Instance) -> None:
    try:
        check_labels(instance)
    except InvalidInput as error:
        raise InvalidInput(error.message, field=f"instance.{error.field}") from error


def _check_constraints(request: PlacementRequest) -> None:
    """Refuse what no host of any cloud could satisfy."""
    constraints, own = request.constraints, request.instance.id
    if own in constraints.affinity:
        raise InvalidInput(f"{own} cannot stand beside itself; leave it out of affinity", field="affinity")
    both = sorted(set(constraints.affinity) & set(constraints.anti_affinity))
    if both:
        raise InvalidInput(f"{both[0]} is in affinity and in anti_affinity; keep one of them", field="anti_affinity")
    if request.instance.exclusive and constraints.affinity:
        message = f"{own} is exclusive, and affinity places it beside {constraints.affinity[0]}"
        raise InvalidInput(message, field="affinity")
    out = sorted(set(request.hosts or ()) & set(constraints.exclude))
    if out:
        raise InvalidInput(f"host {out[0]} is named and excluded; keep one of them", field="exclude")
    if constraints.kind not in {None, *HOST_KINDS}:
        raise InvalidInput(f"kind {constraints.kind!r} is none of {', '.join(HOST_KINDS)}", field="kind")


def check_scene(scene: Scene) -> None:
    """Refuse duplicate names and pinnings that the host has no pCPUs for."""
    check_value(scene)
    check_unique((instance.id for instance in scene.instances), "instance")
    problem = misfit(scene.host, scene.instances)
    if problem:
        raise InvalidInput(problem, field="pinning")


def new_id(now: datetime) -> str:
    """An id that sorts by time (milliseconds), so that lists of answers can be read newest first."""
    return f"{int(now.timestamp() * 1000):012x}-{secrets.token_hex(5)}"


def is_of_now(answer_id: str, now: datetime) -> bool:
    """Whether an id says that it was made in this second."""
    try:
        made_s = int(answer_id.partition("-")[0], 16) / 1000
    except ValueError:
        return False
    return abs(now.timestamp() - made_s) < 1.0


# Requests without the new VM's name, so that cached answers apply to any name.

T = TypeVar("T")

# The stand-in for every new VM's name. It cannot be guessed, so no other text contains it.
NEW_VM = f"newcomer-{secrets.token_hex(16)}"

# Names that every tool reads as the name of an instance; `advisor.render.names` lists the others.
_PLAIN = re.compile(r"(?!Domain-0\Z)(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._:-]{0,59}\Z")


def without_name(request: PlacementRequest, snapshot: ClusterSnapshot) -> PlacementRequest:
    """The request with NEW_VM as the name and without `dry_run`; neither affects the decision.

    The name stays where it does: if the snapshot has an instance of that name, where results were posted of it, in
    commands (tools shorten names or read some differently), and with a profile of its own, by which a model may know
    it.
    """
    name, question = request.instance.id, replace(request, dry_run=False)
    posted = INSTANCE + name in snapshot.scenes.table.subjects
    if request.commands or request.profile is not None or not _PLAIN.match(name) or snapshot.where(name) or posted:
        return question
    return replace(question, instance=_nameless(request.instance, snapshot))


def _nameless(instance: Instance, snapshot: ClusterSnapshot) -> Instance:
    """The instance under the name of every new VM; where its own name says what it is like, a label keeps that."""
    stem, labels = stem_of(instance), instance.labels
    if stem and "name" not in labels and snapshot.names.classes.knows("name", stem):
        labels = {**labels, "name": f"{stem}-0"}
    return replace(instance, id=NEW_VM, labels=labels)


def with_name(answer: Recommendation, name: str) -> Recommendation:
    """An answer to a request without a name, for an instance with this name."""
    return replace(
        answer,
        candidates=tuple(_candidate(candidate, name) for candidate in answer.candidates),
        rejected=tuple(_rejection(rejection, name) for rejection in answer.rejected),
        notes=_texts(answer.notes, name),
    )


def _candidate(candidate: Candidate, name: str) -> Candidate:
    """A candidate; neighbours and their changes keep their names."""
    return replace(
        candidate,
        new_vm=_effect(candidate.new_vm, name),
        reasons=tuple(
            replace(why, text=_text(why.text, name), neighbour=_renamed(why.neighbour, name))
            for why in candidate.reasons
        ),
        mitigation=tuple(_mitigation_step(step, name) for step in candidate.mitigation),
    )


def _rejection(rejection: Rejection, name: str) -> Rejection:
    if NEW_VM not in rejection.reason and not rejection.mitigation:
        return rejection
    return replace(
        rejection,
        reason=_text(rejection.reason, name),
        mitigation=tuple(_mitigation_step(step, name) for step in rejection.mitigation),
    )


def _mitigation_step(step: MitigationStep, name: str) -> MitigationStep:
    return replace(
        step,
        text=_text(step.text, name),
        changes=_keys(step.changes, name),
        effects=tuple(_effect(effect, name) for effect in step.effects),
        notes=_texts(step.notes, name),
    )


def _effect(effect: Effect, name: str) -> Effect:
    return replace(effect, instance=name) if effect.instance == NEW_VM else effect


def _keys(changes: Mapping[str, T], name: str) -> dict[str, T]:
    return {name if who == NEW_VM else who: what for who, what in changes.items()}


def _renamed(instance: str | None, name: str) -> str | None:
    return name if instance == NEW_VM else instance


def _texts(texts: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(_text(text, name) for text in texts)


def _text(text: str, name: str) -> str:
    return text.replace(NEW_VM, name)
