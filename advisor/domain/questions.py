"""What is asked: a cloud as the caller sees it, what to place there, a scene."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Literal, get_args

from advisor.domain.declared import Declared
from models.data.profile import WorkloadProfile
from profiler.observed import Host, Instance

Objective = Literal["worst", "total", "pack"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
AskedObjective = Annotated[
    Objective,
    Declared(
        "what is best",
        words=(
            ("worst", "the best for the most affected instance"),
            ("total", "the best combined score"),
            ("pack", "the fewest hosts"),
        ),
        kinds=("admit", "rebalance", "evacuate", "tune"),
        label="Objective",
        section="Limits",
    ),
]


@dataclass(frozen=True, slots=True)
class Inventory:
    """A whole cloud as the caller sees it. `observed_at` is when hosts were last seen (UTC); None = now."""

    hosts: tuple[Host, ...] = ()
    instances: tuple[Instance, ...] = ()
    workloads: tuple[WorkloadProfile, ...] = ()
    observed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a host must satisfy."""

    labels: Annotated[Mapping[str, str], Declared("every one of these labels")] = field(default_factory=dict)
    exclude: Annotated[tuple[str, ...], Declared("none of these hosts", names="hosts")] = ()
    affinity: Annotated[tuple[str, ...], Declared("beside these instances", names="instances")] = ()
    anti_affinity: Annotated[tuple[str, ...], Declared("apart from these instances", names="instances")] = ()
    kind: Annotated[str | None, Declared("only hosts of this hypervisor", unset="any")] = None
    allow_stale: Annotated[bool, Declared("hosts without fresh data may answer too")] = False


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A request for the best host of an instance. `profile` may replace its workload; with neither it is unknown."""

    instance: Annotated[Instance, Declared("the instance to place")]
    profile: WorkloadProfile | None = None
    hosts: Annotated[tuple[str, ...] | None, Declared("answer only these hosts", unset="all", names="hosts")] = None
    constraints: Annotated[Constraints, Declared("what a host must satisfy")] = field(default_factory=Constraints)
    objective: AskedObjective = "worst"
    limit: Annotated[int, Declared("most hosts in the answer", low=1, high=1000)] = 5
    explain: Annotated[bool, Declared("give the reasons")] = True
    commands: Annotated[bool, Declared("give the commands that apply the settings, with their undo")] = False
    dry_run: Annotated[bool, Declared("hold nothing: the answer reserves no host")] = False
    mitigate: Annotated[
        bool,
        Declared("try other settings on hosts where a limit would break; false: such hosts are rejected"),
    ] = True
    tune: Annotated[
        bool,
        Declared(
            "offer besides, in a list of their own, hosts that would be better if a few settings of who is there "
            "changed first: pins, weights, the CPUs of the driver domain"
        ),
    ] = False


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
