"""Bodies and answers of the service; docs/reference/rest.md tells what their fields mean.

Made by `python packaging/client_schemas.py` from the OpenAPI document; change `api/schemas/`, not this file.
Answers may hold more: later versions add fields.
"""

from typing import Any, Literal, NotRequired, TypedDict


class ModelRef(TypedDict):
    """Which model answered, and where its training data came from."""

    version: str
    origin: str


class LevelHeldOut(TypedDict):
    """How forecasts of such instances held in measured windows of five minutes on contended hosts of this cloud."""

    windows: int
    coverage: float
    error: float


class EvidenceOut(TypedDict):
    """What the answer rests on."""

    level: Literal["size", "class", "given", "history", "measured", "profile"]
    advice: str
    held: NotRequired[LevelHeldOut | None]


class HeadroomOut(TypedDict):
    """What would be left on a host with the new VM, as parts of its capacity; below 0 = more is asked for."""

    cpu: float | None
    memory: float | None
    nic: float | None
    one_numa_node: bool
    cpu_before: NotRequired[float | None]
    memory_before: NotRequired[float | None]
    nic_before: NotRequired[float | None]


class Network(TypedDict):
    """How tc treats an instance: `shared` may borrow up to `ceil_mbit`, `dedicated` keeps to `rate_mbit`."""

    mode: NotRequired[Literal["none", "shared", "dedicated"]]
    rate_mbit: NotRequired[float | None]
    ceil_mbit: NotRequired[float | None]


class Isolation(TypedDict):
    """CPU, network and disk settings; null = leave as is."""

    cap_percent: NotRequired[float | None]
    weight: NotRequired[int | None]
    network: NotRequired[Network | None]
    disk_limit_mb_s: NotRequired[float | None]


class BandOut(TypedDict):
    """A predicted ratio with its range; 1.0 = as alone. It is a 90 % interval where outcomes have calibrated it."""

    expected: float | None
    lower: float | None
    upper: float | None


class CpuOut(TypedDict):
    """CPU delivered to an instance, by the analytic model, also where a learned one answers."""

    share: float | None
    worst_share: float | None
    short: float | None
    short_before: float | None
    overloaded: bool


class BasisOut(TypedDict):
    """What the T/B of one instance rests on where a learned model answers."""

    support: float | None
    correction: float | None
    similar: float | None
    machines: float | None
    measured: float | None
    sentence: str


class NewcomerOut(TypedDict):
    """The predicted effect on the new VM."""

    throughput_ratio: BandOut
    latency_ratio: BandOut
    jitter_ratio: BandOut | None
    outside_training: bool
    cpu: NotRequired[CpuOut | None]
    basis: NotRequired[BasisOut | None]


class EffectOut(TypedDict):
    """What happens to one instance."""

    instance: str
    before: NotRequired[BandOut | None]
    throughput_ratio: BandOut
    latency_ratio: BandOut
    jitter_ratio: NotRequired[BandOut | None]
    outside_training: NotRequired[bool]
    cpu: NotRequired[CpuOut | None]
    basis: NotRequired[BasisOut | None]


class SettingsOut(TypedDict):
    """What an instance would run under; null = leave as is."""

    pinning: dict[str, list[int]] | None
    isolation: Isolation


class MitigationStepOut(TypedDict):
    """One step of the isolation ladder as it was tried where a limit would break."""

    action: Literal["weight", "cap", "pinning", "network", "disk", "hint", "driver_domain", "host"]
    text: str
    changes: dict[str, SettingsOut]
    effects: list[EffectOut]
    satisfies: bool
    driver_cpus: list[int] | None
    notes: NotRequired[list[str]]


class ReasonOut(TypedDict):
    """One part of an explanation."""

    resource: str
    share: float | None
    text: str
    neighbour: str | None
    kind: NotRequired[Literal["loss", "comparison", "counterfactual", "uncertainty"]]
    finding: NotRequired[str]
    ratio: NotRequired[float | None]


class CommandOut(TypedDict):
    """One step to apply and how to undo it; argument lists, never shell text."""

    tool: str
    argv: list[str]
    undo: list[str]
    note: NotRequired[str]


class CandidateOut(TypedDict):
    """One host that can take the instance, with the pinning and settings that suit it best there."""

    rank: int
    host: str
    score: float | None
    tied_with: list[str]
    headroom: NotRequired[HeadroomOut | None]
    reserved: NotRequired[float | None]
    crowded: NotRequired[float | None]
    calibration: NotRequired[Literal["observed", "trained", "windows", "none"]]
    calibration_hosts: NotRequired[int | None]
    evidence: NotRequired[dict[str, int]]
    combined_score: float | None
    pinning: dict[str, list[int]] | None
    isolation: Isolation
    newcomer: NewcomerOut
    neighbours: list[EffectOut]
    changes: NotRequired[dict[str, SettingsOut]]
    mitigation: NotRequired[list[MitigationStepOut]]
    notes: NotRequired[list[str]]
    reasons: list[ReasonOut]
    commands: NotRequired[list[CommandOut]]


class TuningStepOut(TypedDict):
    """One change to a host as it stands."""

    instance: str
    why: str
    settings: SettingsOut | None
    driver_cpus: list[int]
    driver_weight: int | None
    effects: list[EffectOut]
    notes: list[str]


class TunedCandidateOut(TypedDict):
    """A host as it would be after a few changes to who is there; `neighbours[].before` is without them."""

    rank: int
    host: str
    score: float | None
    tied_with: list[str]
    headroom: NotRequired[HeadroomOut | None]
    reserved: NotRequired[float | None]
    crowded: NotRequired[float | None]
    calibration: NotRequired[Literal["observed", "trained", "windows", "none"]]
    calibration_hosts: NotRequired[int | None]
    evidence: NotRequired[dict[str, int]]
    combined_score: float | None
    pinning: dict[str, list[int]] | None
    isolation: Isolation
    newcomer: NewcomerOut
    neighbours: list[EffectOut]
    changes: NotRequired[dict[str, SettingsOut]]
    mitigation: NotRequired[list[MitigationStepOut]]
    notes: NotRequired[list[str]]
    reasons: list[ReasonOut]
    commands: NotRequired[list[CommandOut]]
    tuning: list[TuningStepOut]


class RejectionOut(TypedDict):
    """A host that cannot take the instance: a stable code and a sentence."""

    host: str
    code: str
    reason: str
    mitigation: NotRequired[list[MitigationStepOut]]


class PlacementAnswer(TypedDict):
    """The ranked answer; an empty list of candidates with reasons is an answer too."""

    id: str
    created_at: str
    model: ModelRef
    degraded: bool
    snapshot_age_s: float
    dry_run: bool
    notes: list[str]
    evidence: NotRequired[EvidenceOut | None]
    advised: NotRequired[Literal["none", "place", "stay", "settings", "move"]]
    present: NotRequired[CandidateOut | None]
    candidates: list[CandidateOut]
    tuned: NotRequired[list[TunedCandidateOut]]
    rejected: list[RejectionOut]


class BurstFiguresOut(TypedDict):
    """What the answers of a batch do together."""

    placed: int
    not_kept: int
    hosts_used: int
    harm: float | None


class JointSearchOut(TypedDict):
    """How joint answers were found, and by how much they are better than those in the order given."""

    chosen: Literal["given", "largest_first", "planned_worst", "planned_total", "planned_pack"]
    tried: list[Literal["given", "largest_first", "planned_worst", "planned_total", "planned_pack"]]
    ended: Literal["search", "time"]
    found: BurstFiguresOut
    given: BurstFiguresOut


class BatchAnswer(TypedDict):
    """The answers, each as that to one question."""

    answers: list[PlacementAnswer]
    joint: NotRequired[JointSearchOut | None]


class DemandBody(TypedDict):
    """What an instance would use of a resource if nothing held it back, over time: CPUs, Mbit/s or MB/s."""

    mean: float
    spread: NotRequired[float]
    p50: NotRequired[float | None]
    p95: NotRequired[float | None]
    p99: NotRequired[float | None]
    window_s: NotRequired[float]
    autocorrelation_s: NotRequired[float | None]
    hours: NotRequired[list[float]]
    seen_hours: NotRequired[list[float]]
    common: NotRequired[float | None]
    windows: NotRequired[float]
    doubt: NotRequired[float]
    open_loop: NotRequired[float | None]
    burst_ms: NotRequired[float | None]
    origin: NotRequired[Literal["given", "class", "measured", "history", "trace", "assumed"]]


class NewInstance(TypedDict):
    """The instance to place; `profile` may replace `workload`; with neither, and no demand for CPUs, it counts as
    using 10 % of its vCPUs, as virtual machines of public traces do, and nothing else, with a wide range."""

    disk_gb: NotRequired[float]
    workload: NotRequired[str | None]
    load: NotRequired[float]
    pinning: NotRequired[dict[str, list[int]] | None]
    isolation: NotRequired[Isolation]
    service: NotRequired[Literal["latency", "throughput"]]
    min_throughput_ratio: NotRequired[float | None]
    max_latency_ratio: NotRequired[float | None]
    max_time_short: NotRequired[float | None]
    exclusive: NotRequired[bool]
    dedicated_vcpus: NotRequired[int]
    labels: NotRequired[dict[str, str]]
    demand: NotRequired[dict[str, float | DemandBody]]
    id: str
    vcpus: NotRequired[int | None]
    memory_mb: NotRequired[float | None]
    like: NotRequired[str | None]
    profile: NotRequired[dict[str, float] | None]


class ConstraintsBody(TypedDict):
    """What a candidate host must satisfy."""

    labels: NotRequired[dict[str, str]]
    exclude: NotRequired[list[str]]
    affinity: NotRequired[list[str]]
    anti_affinity: NotRequired[list[str]]
    kind: NotRequired[Literal["xen", "kvm", "lxc"] | None]
    allow_stale: NotRequired[bool]


class BatchBody(TypedDict):
    """Where should each of these go, when the ones before it have gone where they should?"""

    instances: list[NewInstance]
    order: NotRequired[Literal["given", "joint"]]
    time_limit_s: NotRequired[float]
    hosts: NotRequired[list[str] | None]
    constraints: NotRequired[ConstraintsBody]
    objective: NotRequired[Literal["worst", "total", "pack"]]
    limit: NotRequired[int]
    explain: NotRequired[bool]
    dry_run: NotRequired[bool]


class Generation(TypedDict):
    """The inventory's generation: it grows with every change."""

    generation: int


class GenerationStored(TypedDict):
    """The generation after a change."""

    generation: int
    notes: NotRequired[list[str]]


class HostItem(TypedDict):
    """A host with its id."""

    id: str
    kind: Literal["xen", "kvm", "lxc"]
    pcpus: int
    memory_mb: float
    threads_per_core: NotRequired[int]
    cpu_mhz: NotRequired[float | None]
    l2_mb: NotRequired[float | None]
    l3_mb: NotRequired[float | None]
    nic_mbit: NotRequired[float | None]
    disk_gb: NotRequired[float | None]
    disk_kind: NotRequired[Literal["", "hdd", "ssd", "nvme", "network"]]
    disk_mb_s: NotRequired[float | None]
    mem_bw_mb_s: NotRequired[float | None]
    numa: NotRequired[list[list[int]]]
    siblings: NotRequired[list[list[int]]]
    driver_cpus: NotRequired[list[int]]
    cpu_ids: NotRequired[list[int]]
    isolated_cpus: NotRequired[list[int]]
    dedicated_cpus: NotRequired[list[int]]
    labels: NotRequired[dict[str, str]]
    enabled: NotRequired[bool]
    cpu_overcommit: NotRequired[float]
    memory_overcommit: NotRequired[float]
    driver_overcommit: NotRequired[float]
    driver_weight: NotRequired[int]
    platform: NotRequired[str]
    own_cpus: NotRequired[float]
    second_thread: NotRequired[float | None]
    turbo_mhz: NotRequired[float | None]
    disk_iops: NotRequired[float | None]


class InstanceItem(TypedDict):
    """An instance with its id."""

    disk_gb: NotRequired[float]
    workload: NotRequired[str | None]
    load: NotRequired[float]
    pinning: NotRequired[dict[str, list[int]] | None]
    isolation: NotRequired[Isolation]
    service: NotRequired[Literal["latency", "throughput"]]
    min_throughput_ratio: NotRequired[float | None]
    max_latency_ratio: NotRequired[float | None]
    max_time_short: NotRequired[float | None]
    exclusive: NotRequired[bool]
    dedicated_vcpus: NotRequired[int]
    labels: NotRequired[dict[str, str]]
    demand: NotRequired[dict[str, float | DemandBody]]
    id: str
    vcpus: NotRequired[int]
    memory_mb: NotRequired[float]
    host: NotRequired[str | None]


class WorkloadItem(TypedDict):
    """A workload with its name."""

    name: str
    metrics: dict[str, float]
    platform: NotRequired[str]
    origin: NotRequired[str]


class InventoryBody(TypedDict):
    """A whole cloud as the caller sees it."""

    hosts: NotRequired[list[HostItem]]
    instances: NotRequired[list[InstanceItem]]
    workloads: NotRequired[list[WorkloadItem]]
    observed_at: NotRequired[str | None]
    mode: NotRequired[Literal["replace", "merge"]]
    generation: NotRequired[int | None]


class ActivationOut(TypedDict):
    """One change of the model that answers; `cause` is activate, force (against the gate) or rollback."""

    at: str
    before: str
    after: str
    cause: str


class ModelOut(TypedDict):
    """A registered model: `status` is candidate, shadow, active or retired; `card` is the artifact's card."""

    version: str
    status: str
    created_at: str
    origin: str
    card: dict[str, Any]
    verdict: NotRequired[dict[str, Any] | None]
    history: NotRequired[list[ActivationOut] | None]


class OutcomeBody(TypedDict):
    """What really happened after a placement: measured T/B of each instance on the host it went to."""

    host: str
    throughput_ratios: dict[str, float]


class PlacementBody(TypedDict):
    """Where should this instance go?"""

    instance: NewInstance
    hosts: NotRequired[list[str] | None]
    constraints: NotRequired[ConstraintsBody]
    objective: NotRequired[Literal["worst", "total", "pack"]]
    limit: NotRequired[int]
    explain: NotRequired[bool]
    commands: NotRequired[bool]
    dry_run: NotRequired[bool]
    mitigate: NotRequired[bool]
    tune: NotRequired[bool]


class AgeOut(TypedDict):
    """The plan beside the inventory of now."""

    stale: bool | None
    generation: int
    hosts: list[str] | None
    instances: list[str] | None


class AskedInstance(TypedDict):
    """An instance of a plan or of a scene."""

    disk_gb: NotRequired[float]
    workload: NotRequired[str | None]
    load: NotRequired[float]
    pinning: NotRequired[dict[str, list[int]] | None]
    isolation: NotRequired[Isolation]
    service: NotRequired[Literal["latency", "throughput"]]
    min_throughput_ratio: NotRequired[float | None]
    max_latency_ratio: NotRequired[float | None]
    max_time_short: NotRequired[float | None]
    exclusive: NotRequired[bool]
    dedicated_vcpus: NotRequired[int]
    labels: NotRequired[dict[str, str]]
    demand: NotRequired[dict[str, float | DemandBody]]
    id: str
    vcpus: NotRequired[int | None]
    memory_mb: NotRequired[float | None]
    like: NotRequired[str | None]
    host: NotRequired[str | None]


class GrowthBody(TypedDict):
    """How demand grows."""

    instances_per_month: NotRequired[float]
    load_percent_per_month: NotRequired[float]
    months: NotRequired[int]
    uncertain_percent: NotRequired[float]


class WhatIfBody(TypedDict):
    """A cloud that is only imagined."""

    hosts: NotRequired[list[HostItem]]
    remove: NotRequired[list[str]]
    cpu_overcommit: NotRequired[float | None]
    memory_overcommit: NotRequired[float | None]
    pinning: NotRequired[Literal["as_it_is", "unpinned", "own"]]
    model: NotRequired[str | None]


class PlanBody(TypedDict):
    """What should become of the whole cloud? Without `kind`: place `instances`."""

    kind: NotRequired[
        Literal["admit", "rebalance", "evacuate", "consolidate", "capacity", "what_if", "right_size", "tune"]
    ]
    instances: NotRequired[list[AskedInstance]]
    empty: NotRequired[list[str]]
    hosts: NotRequired[list[str] | None]
    movable: NotRequired[list[str] | None]
    objective: NotRequired[Literal["worst", "total", "pack"]]
    plan_for: NotRequired[Literal["hours", "mean", "p50", "p95", "p99"]]
    keep_ratio: NotRequired[float]
    max_moves: NotRequired[int | None]
    move_gain: NotRequired[float]
    rest_h: NotRequired[float]
    at_once: NotRequired[int]
    at_once_per_host: NotRequired[int]
    at_once_per_rack: NotRequired[int | None]
    rack_label: NotRequired[str]
    migration_mbit: NotRequired[float | None]
    rack_mbit: NotRequired[float | None]
    growth: NotRequired[GrowthBody | None]
    spare_hosts: NotRequired[int]
    spare_label: NotRequired[str | None]
    what_if: NotRequired[WhatIfBody | None]
    then: NotRequired[Literal["admit", "rebalance", "consolidate", "capacity"] | None]
    allow: NotRequired[Literal["lift_cap"] | None]
    commands: NotRequired[bool]
    time_limit_s: NotRequired[float]
    seed: NotRequired[int]


class SearchOut(TypedDict):
    """How the plan was found."""

    aim: str
    value: float | None
    bound: float | None
    gap: float | None
    ended: Literal["optimal", "time", "search", "already fine", "in the way", "not now"]


class SumsOut(TypedDict):
    """A cloud in figures."""

    hosts: int
    hosts_used: int
    instances: int
    below: int
    worst: float | None
    mean: float | None
    total: float | None
    score: NotRequired[float | None]
    score_lowest: NotRequired[float | None]
    scores: NotRequired[list[int]]
    watts: NotRequired[float | None]
    price: NotRequired[float | None]


class RunwayOut(TypedDict):
    """The cloud some months from now."""

    month: float
    added: int
    load_factor: float
    sums: SumsOut
    fits: bool


class SpareOut(TypedDict):
    """How much more fits with a failover reserve."""

    hosts: int
    label: str | None
    fit: int | None
    too_many: int
    in_the_way: str


class CapacityOut(TypedDict):
    """How much more of the mix fits."""

    fit: int
    fit_lower: int
    by_rule: int
    first_refusal: str
    runs_out_month: float | None
    earliest_month: NotRequired[float | None]
    latest_month: NotRequired[float | None]
    months_examined: int | None
    outlook: str
    runway: list[RunwayOut]
    spare: NotRequired[SpareOut | None]


class VariantOut(TypedDict):
    """One of several clouds side by side."""

    name: str
    sums: SumsOut
    fit: NotRequired[int | None]
    runs_out_month: NotRequired[float | None]
    instance_days: NotRequired[float | None]
    notes: NotRequired[list[str]]


class ClassSizingOut(TypedDict):
    """What new numbers of vCPUs save and risk in one class of instances."""

    name: str
    instances: int
    vcpus: int
    vcpus_then: int
    short: float | None
    short_mean: float | None
    riskiest: str
    busiest: float | None


class SecondsOut(TypedDict):
    """A time in seconds, and between which ends it lies."""

    expected: float | None
    lower: float | None
    upper: float | None


class PlanStepOut(TypedDict):
    """One step; `host` null = no host could take it, for the reasons in `rejected`, or it is taken away (undo)."""

    instance: str
    host: str | None
    action: NotRequired[Literal["place", "move", "settings", "resize", "remove", "driver_domain"]]
    source: NotRequired[str | None]
    stage: NotRequired[int]
    why: NotRequired[str]
    gain: NotRequired[BandOut | None]
    score: NotRequired[float | None]
    tied_with: NotRequired[list[str]]
    newcomer: NotRequired[EffectOut | None]
    pinning: NotRequired[dict[str, list[int]] | None]
    isolation: NotRequired[Isolation | None]
    changes: NotRequired[dict[str, SettingsOut]]
    vcpus: NotRequired[int | None]
    duration_s: NotRequired[SecondsOut | None]
    rejected: list[RejectionOut]
    commands: NotRequired[list[CommandOut]]
    notes: NotRequired[list[str]]
    effects: NotRequired[list[EffectOut]]
    driver_cpus: NotRequired[list[int]]
    driver_weight: NotRequired[int | None]


class PlanAnswer(TypedDict):
    """A plan, with the predicted effect on each host's instances before and after."""

    id: str
    created_at: str
    kind: Literal["admit", "rebalance", "evacuate", "consolidate", "capacity", "what_if", "right_size", "tune"]
    model: ModelRef
    degraded: bool
    generation: int | None
    stale: NotRequired[bool | None]
    age: NotRequired[AgeOut | None]
    question: PlanBody
    notes: list[str]
    search: SearchOut | None
    sums_before: SumsOut | None
    sums_after: SumsOut | None
    capacity: NotRequired[CapacityOut | None]
    variants: NotRequired[list[VariantOut]]
    sizing: NotRequired[list[ClassSizingOut]]
    steps: list[PlanStepOut]
    undo: NotRequired[list[PlanStepOut]]
    duration_s: NotRequired[SecondsOut | None]
    before: dict[str, list[EffectOut]]
    after: dict[str, list[EffectOut]]


class PlanItem(TypedDict):
    """A plan in a listing."""

    id: str
    created_at: str
    kind: Literal["admit", "rebalance", "evacuate", "consolidate", "capacity", "what_if", "right_size", "tune"]
    model_version: str
    generation: int | None
    stale: bool | None


class FieldError(TypedDict):
    """One thing that is wrong in the input."""

    field: str
    code: str
    detail: str


class Problem(TypedDict):
    """An RFC 9457 problem document; `code` is stable, `detail` is for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    field: NotRequired[str | None]
    errors: NotRequired[list[FieldError]]


class Readiness(TypedDict):
    """The service can answer questions. Where tokens are needed, `status` is all that it says."""

    status: str
    database: NotRequired[str]
    generation: NotRequired[int]
    model: NotRequired[str]
    degraded: NotRequired[bool]
    snapshot_age_s: NotRequired[float]
    hosts: NotRequired[int]


class SceneAnswer(TypedDict):
    """What the instances of a scene do to each other, in the scene's order."""

    model: ModelRef
    degraded: bool
    combined_score: float | None
    effects: list[EffectOut]
    crowded: NotRequired[float | None]


class SceneBody(TypedDict):
    """A host and the instances that share it; workloads that are not given here are looked up by name."""

    host: HostItem
    instances: list[AskedInstance]
    workloads: NotRequired[list[WorkloadItem]]
