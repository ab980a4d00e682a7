"""What an answer rests on: what is known of the new VM and of residents, and what to do to know more."""

from __future__ import annotations

from dataclasses import replace

from advisor.domain import Candidate, Evidence, Instance, PlacementRequest, evidence_counts, evidence_level
from advisor.domain.effects import WEAK
from advisor.snapshot import ClusterSnapshot
from models.data.cloud_classes import WHOLE_CLOUD

_FEW = 0.1  # of the residents: so few that are hardly known are no reason to do something


def with_class(snapshot: ClusterSnapshot, request: PlacementRequest) -> PlacementRequest:
    """The request with the demand of the new VM's class where nothing is known of its own."""
    if request.profile is not None:
        return request
    instance = snapshot.with_class(request.instance)
    return request if instance is request.instance else replace(request, instance=instance)


def class_note(snapshot: ClusterSnapshot, instance: Instance) -> str:
    """A sentence on which others the instance is taken to be like, and how well this predicts them; empty = none."""
    known = instance.demand.get("cpu")
    if known is None or known.origin != "class":
        return ""
    low, high = max(known.mean - known.doubt, 0.0), min(known.mean + known.doubt, float(instance.vcpus))
    about = f"about {known.mean:.2g} CPUs on average (between {low:.2g} and {high:.2g})"
    classes = snapshot.names.classes
    bare = replace(instance, demand={name: demand for name, demand in instance.demand.items() if name != "cpu"})
    if snapshot.with_class(bare).demand.get("cpu") != known:
        return f"The demand of {instance.id} is estimated from another instance of its kind: {about}."
    (name, value), count = classes.basis(instance)[-1]
    share = "of this cloud" if (name, value) == WHOLE_CLOUD else f"with the same {name} ({value[:60]})"
    kind = "1 known instance" if count == 1 else f"{count} known instances"
    accuracy = classes.accuracy
    off = (
        f" Such estimates were within a factor of {accuracy.nine_in_ten:.1f} in 90 % of cases here." if accuracy else ""
    )
    return f"The demand of {instance.id} is estimated from {kind} {share}: {about}.{off}"


def evidence_of(snapshot: ClusterSnapshot, request: PlacementRequest, candidates: tuple[Candidate, ...]) -> Evidence:
    """The new VM's level, and the one step that would add most knowledge."""
    level = "profile" if request.profile is not None else evidence_level(request.instance, snapshot.names.profiled)
    return Evidence(level, _advice(level, candidates))


def with_counts(
    snapshot: ClusterSnapshot, request: PlacementRequest, candidates: tuple[Candidate, ...]
) -> tuple[Candidate, ...]:
    """Candidates with how many residents of each, beside the one that is asked about, are known how well."""
    counted = []
    for candidate in candidates:
        position = snapshot.index(candidate.host)
        residents = () if position is None else snapshot.residents[position]
        others = [resident for resident in residents if resident.id != request.instance.id]
        counted.append(replace(candidate, evidence=evidence_counts(others, snapshot.names.profiled)))
    return tuple(counted)


def _advice(level: str, candidates: tuple[Candidate, ...]) -> str:
    if level == "size":
        like = "name an instance that it is like (--like NAME; in REST: like)"
        return f"To know more, {like}, or say what it uses (demand: {{cpu: 0.5}})."
    if not candidates:
        return ""
    best = candidates[0]
    total, weak = sum(best.evidence.values()), sum(best.evidence.get(each, 0) for each in WEAK)
    if weak <= _FEW * total:
        return ""
    who = "its only resident was" if total == 1 else f"{weak} of its {total} residents {'was' if weak == 1 else 'were'}"
    return f"To know more, run the agent on {best.host} (cotenant-profiler run --host {best.host} --push URL): " + (
        f"{who} never measured."
    )
