"""What is asked: a cloud as the caller sees it, what to place there, a scene."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, get_args

from models.data.profile import WorkloadProfile
from profiler.observed import Host, Instance

Objective = Literal["worst", "total", "pack"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


@dataclass(frozen=True, slots=True)
class Inventory:
    """A whole cloud as the caller sees it. `observed_at` is when hosts were last seen (UTC); None = now."""

    hosts: tuple[Host, ...] = ()
    instances: tuple[Instance, ...] = ()
    workloads: tuple[WorkloadProfile, ...] = ()
    observed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a host must satisfy: every label, not in `exclude`, beside all of `affinity`, apart from `anti_affinity`."""

    labels: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    affinity: tuple[str, ...] = ()
    anti_affinity: tuple[str, ...] = ()
    kind: str | None = None
    allow_stale: bool = False


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A request for the best host of an instance. `profile` may replace its workload; with neither it is unknown.

    Without `mend` no settings may change: a host on which a limit is violated is rejected, whatever mitigation would
    do.
    """

    instance: Instance
    profile: WorkloadProfile | None = None
    hosts: tuple[str, ...] | None = None
    constraints: Constraints = field(default_factory=Constraints)
    objective: Objective = "worst"
    limit: int = 5
    explain: bool = True
    commands: bool = False
    dry_run: bool = False
    mend: bool = True


def like_another(instance: Instance, other: Instance, sized: Collection[str]) -> Instance:
    """A new instance with what is known of another one: its demand at its own size, workload and sensitivity.

    Its size, too, but for the fields `sized`, which were said: `vcpus` or `memory_mb`.
    """
    size = {name: getattr(other, name) for name in ("vcpus", "memory_mb") if name not in sized}
    vcpus = int(size.get("vcpus", instance.vcpus))
    demand = {resource: known.of_another(vcpus / other.vcpus) for resource, known in other.demand.items()}
    return replace(instance, **size, workload=other.workload, demand=demand, service=other.service)


@dataclass(frozen=True, slots=True)
class NamedSize:
    """A size of instances by the name that their cloud has for it, such as a flavor."""

    name: str
    vcpus: int
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Scene:
    """A host and who shares it: the question of `predict`. Workloads not among `workloads` are looked up by name."""

    host: Host
    instances: tuple[Instance, ...]
    workloads: tuple[WorkloadProfile, ...] = ()
