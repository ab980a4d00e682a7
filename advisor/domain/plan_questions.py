"""Questions: where an instance should go, and what should become of a whole cloud, with bounds and defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Literal, get_args

from advisor.domain.declared import Declared
from advisor.errors import InvalidInput
from models.data.profile import WorkloadProfile
from profiler.observed import Host, Instance

# What is asked: a cloud as the caller sees it, what to place there, a scene.

Objective = Literal["worst", "total", "limits", "pack"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
AskedObjective = Annotated[
    Objective,
    Declared(
        "what is best",
        words=(
            ("worst", "the best for the most affected instance"),
            ("total", "the best combined score"),
            ("limits", "the fewest instances below their limits"),
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
            "offer besides, in a list of their own, hosts that would be better if a few settings of residents "
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
    """A host and its instances: the question of `predict`. Workloads not among `workloads` are looked up by name."""

    host: Host
    instances: tuple[Instance, ...]
    workloads: tuple[WorkloadProfile, ...] = ()


Allowance = Literal["lift_cap"]  # what a tuning changes only where the operator says that it may
PlanKind = Literal[
    "admit", "rebalance", "evacuate", "consolidate", "repair", "capacity", "what_if", "right_size", "tune"
]
PLAN_KINDS: tuple[PlanKind, ...] = get_args(PlanKind)
NextKind = Literal["admit", "rebalance", "consolidate", "capacity"]  # what may be asked of an imagined cloud
PlanFor = Literal["hours", "mean", "p50", "p95", "p99"]
PLAN_FOR: tuple[PlanFor, ...] = get_args(PlanFor)
PinningPolicy = Literal["as_it_is", "unpinned", "own"]
PINNING_POLICIES: tuple[PinningPolicy, ...] = get_args(PinningPolicy)
MOVING_KINDS: tuple[PlanKind, ...] = ("rebalance", "evacuate", "consolidate", "repair")
PLACING_KINDS: tuple[PlanKind, ...] = ("admit", "capacity")
_SEARCHING: tuple[PlanKind, ...] = ("admit", *MOVING_KINDS, "capacity", "tune")
_LIMITED: tuple[PlanKind, ...] = ("admit", *MOVING_KINDS, "capacity", "what_if", "right_size")
_DEMANDING: tuple[PlanKind, ...] = ("admit", *MOVING_KINDS, "capacity", "what_if", "tune")


# A declaration reads as a paragraph, not as a list.
# fmt: off
@dataclass(frozen=True, slots=True)
class Growth:
    """How demand grows."""

    instances_per_month: Annotated[
        float,
        Declared(
            "instances of the mix that come each month",
            low=0.0, high=1e6, label="New instances a month", section="Growth", option="growth", metavar="N",
        ),
    ] = 0.0
    load_percent_per_month: Annotated[
        float,
        Declared(
            "how much the load of all instances grows each month, compounded",
            low=0.0, high=1000.0, label="More load a month, %", section="Growth", option="load-growth",
            metavar="PERCENT",
        ),
    ] = 0.0
    months: Annotated[
        int, Declared("how many months to look ahead", low=1, high=240, label="Months to look ahead", section="Growth")
    ] = 24
    uncertain_percent: Annotated[
        float,
        Declared(
            "by how much of itself growth may be more or less",
            low=0.0, high=100.0, label="Growth is uncertain by, %", section="Growth", option="growth-uncertain",
            metavar="PERCENT",
        ),
    ] = 0.0

    @classmethod
    def given(cls, **parts: float | None) -> Growth | None:
        """Growth of which some parts were given; None where nothing grows. InvalidInput where only how was given."""
        known = {name: part for name, part in parts.items() if part is not None}
        if known.get("instances_per_month") is not None or known.get("load_percent_per_month"):
            return cls(**known)  # type: ignore[arg-type]
        for name in ("months", "uncertain_percent"):
            if known.get(name, getattr(cls(), name)) != getattr(cls(), name):
                message = f"{name} is about growth; say how many instances or how much load come each month"
                raise InvalidInput(message, field=f"growth.{name}")
        return None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A cloud that is only imagined."""

    hosts: Annotated[tuple[Host, ...], Declared("in addition, or instead of the one of the same id")] = ()
    remove: Annotated[
        tuple[str, ...],
        Declared(
            "hosts that are gone; their instances are placed anew",
            label="Hosts that go", section="What is otherwise", names="hosts",
        ),
    ] = ()
    cpu_overcommit: Annotated[
        float | None,
        Declared(
            "CPU overcommit of every host",
            low=0.01, high=1000.0, unset="each host's own", label="CPU overcommit", section="What is otherwise",
        ),
    ] = None
    memory_overcommit: Annotated[
        float | None,
        Declared(
            "memory overcommit of every host",
            low=0.01, high=1000.0, unset="each host's own", label="Memory overcommit", section="What is otherwise",
        ),
    ] = None
    pinning: Annotated[
        PinningPolicy,
        Declared(
            "pinning of all instances",
            words=(
                ("as_it_is", "as it is"),
                ("unpinned", "no instance is pinned"),
                ("own", "each instance has pCPUs of its own where they suffice"),
            ),
            label="Pinning", section="What is otherwise",
        ),
    ] = "as_it_is"
    model: Annotated[
        str | None,
        Declared(
            "version of the model that is asked", unset="the one that answers", label="Model that is asked",
            section="What is otherwise", names="models",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What should become of the whole cloud?"""

    kind: Annotated[PlanKind, Declared("which question the plan answers")] = "admit"
    instances: Annotated[
        tuple[Instance, ...],
        Declared(
            "instances to place, or the mix of which more should fit; a known id means that instance, or in a mix more "
            "of its form; without any, the mix of capacity is the cloud's own",
            kinds=PLACING_KINDS, only=True, needed=("admit",), option="add", metavar="FILE",
        ),
    ] = ()
    empty: Annotated[
        tuple[str, ...],
        Declared(
            "hosts to be emptied",
            kinds=("evacuate",), only=True, needed=True, label="Hosts to empty", section="Hosts", names="hosts",
        ),
    ] = ()
    hosts: Annotated[
        tuple[str, ...] | None,
        Declared(
            "hosts that may be used",
            low=1, unset="all", kinds=_SEARCHING, label="Hosts that may be used", section="Hosts", names="hosts",
        ),
    ] = None
    movable: Annotated[
        tuple[str, ...] | None,
        Declared(
            "instances that may move",
            unset="all whose pinning the caller did not give", kinds=MOVING_KINDS, only=True,
            label="Instances that may move", section="Moves", names="instances",
        ),
    ] = None
    objective: AskedObjective = "worst"
    plan_for: Annotated[
        PlanFor,
        Declared(
            "demand that counts",
            words=(
                ("hours", "as it varies over the hours"),
                ("mean", "the mean of each instance"),
                ("p50", "p50 of each, all at once"),
                ("p95", "p95 of each, all at once"),
                ("p99", "p99 of each, all at once"),
            ),
            kinds=_DEMANDING, label="Demand that counts", section="Limits",
        ),
    ] = "hours"
    keep_ratio: Annotated[
        float,
        Declared(
            "lowest accepted relative throughput of an instance without a limit of its own; 1 = as alone",
            low=0.01, high=1.0, kinds=_LIMITED, label="Lowest relative throughput", section="Limits",
        ),
    ] = 0.8
    max_moves: Annotated[
        int | None,
        Declared(
            "most moves",
            low=0, high=1_000_000, unset="any number", kinds=MOVING_KINDS, only=True, label="Most moves",
            section="Moves",
        ),
    ] = None
    move_gain: Annotated[
        float,
        Declared(
            "by how much a move must reduce the loss at least, beyond its cost and the uncertainty: in speed and time "
            "for the most affected instance, and 0.3 of that of all others",
            low=0.0, high=1.0, kinds=("rebalance",), label="A move must gain", section="Limits",
        ),
    ] = 0.02
    rest_h: Annotated[
        float,
        Declared(
            "hours for which an instance stays after a move, and within which a move must pay for itself; twice as "
            "many after each move more within a week; 0 = none, and a move must pay within an hour",
            low=0.0, high=168.0, kinds=("rebalance", "consolidate"), label="Rest after a move, h", section="Moves",
            option="rest", metavar="HOURS",
        ),
    ] = 6.0
    at_once: Annotated[
        int,
        Declared(
            "most moves in one stage", low=1, high=1000, kinds=MOVING_KINDS, label="Moves at once", section="Moves"
        ),
    ] = 8
    at_once_per_host: Annotated[
        int,
        Declared(
            "most moves in one stage to or from one host",
            low=1, high=8, kinds=MOVING_KINDS, label="Moves at once per host", section="Moves",
        ),
    ] = 4  # each part of the moves of one host in a stage is checked: of 8 moves 255 sets
    at_once_per_rack: Annotated[
        int | None,
        Declared(
            "most moves in one stage to or from the hosts of one rack",
            low=1, high=1000, unset="any number", kinds=MOVING_KINDS, label="Moves at once per rack", section="Moves",
        ),
    ] = None
    rack_label: Annotated[
        str,
        Declared(
            "the label of hosts that names their rack",
            longest=63, kinds=MOVING_KINDS, label="Label that names a host's rack", section="Moves", metavar="LABEL",
        ),
    ] = "rack"
    migration_mbit: Annotated[
        float | None,
        Declared(
            "Mbit/s of each host's network for its moves",
            low=1.0, high=1e9, unset="its label migration_mbit, else all of it", kinds=MOVING_KINDS,
            label="Network of a host for moves, Mbit/s", section="Moves", metavar="MBIT/S",
        ),
    ] = None
    rack_mbit: Annotated[
        float | None,
        Declared(
            "Mbit/s out of, and into, each rack for all moves together",
            low=1.0, high=1e9, unset="not limited", kinds=MOVING_KINDS, label="Network of a rack for moves, Mbit/s",
            section="Moves", metavar="MBIT/S",
        ),
    ] = None
    growth: Annotated[Growth | None, Declared("how demand grows", kinds=("capacity",), only=True)] = None
    spare_hosts: Annotated[
        int,
        Declared(
            "so many hosts may fail together and every instance still has a host",
            low=0, high=100, kinds=("capacity",), only=True, label="Hosts that may fail together",
            section="Failover reserve", metavar="N",
        ),
    ] = 0
    spare_label: Annotated[
        str | None,
        Declared(
            "not single hosts fail but all hosts of so many values of this label, such as rack",
            longest=63, unset="single hosts", kinds=("capacity",), only=True, label="Or groups of hosts by label",
            section="Failover reserve", metavar="LABEL",
        ),
    ] = None
    what_if: Annotated[
        WhatIf | None,
        Declared("what differs in the imagined cloud", kinds=("what_if",), only=True, needed=True, metavar="FILE"),
    ] = None
    then: Annotated[
        NextKind | None,
        Declared(
            "asked of the imagined cloud",
            unset="only what happens to every instance",
            words=(
                ("capacity", "how much more fits"),
                ("admit", "can these be placed"),
                ("rebalance", "which instances should move"),
                ("consolidate", "how few hosts would do"),
            ),
            kinds=("what_if",), only=True, label="Then ask there", section="What is otherwise",
        ),
    ] = None
    allow: Annotated[
        Allowance | None,
        Declared(
            "what a tuning may change beside the rest",
            unset="nothing else",
            words=(("lift_cap", "raise or lift caps of instances; a cap may be what the owner pays for"),),
            kinds=("tune",), only=True, label="It may also", section="Limits",
        ),
    ] = None
    commands: Annotated[
        bool, Declared("give the commands of every step", label="With commands for each step", section="The search")
    ] = False
    time_limit_s: Annotated[
        float,
        Declared(
            "seconds after which the search ends and the best plan found so far is the answer",
            low=0.1, high=3600.0, label="Time, s", section="The search", option="time-limit", metavar="SECONDS",
        ),
    ] = 30.0
    seed: Annotated[
        int,
        Declared(
            "seed of random choices; the same seed gives the same answer", low=0, high=2**31 - 1, label="Seed",
            section="The search",
        ),
    ] = 1
# fmt: on
