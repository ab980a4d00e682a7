"""Bodies and answers of the service; docs/reference/rest.md says what their fields mean.

Made by `python packaging/client_schemas.py` from the OpenAPI document; change `api/schemas/`, not this file.
Answers may hold more: later versions add fields.
"""

from typing import Any, Literal, NotRequired, TypedDict


class NetworkOut(TypedDict):
    """How tc treats an instance: `shared` may borrow up to `ceil_mbit`, `dedicated` keeps to `rate_mbit`."""

    mode: Literal["none", "shared", "dedicated"]
    rate_mbit: float | None
    ceil_mbit: float | None


class IsolationOut(TypedDict):
    """CPU, network and disk settings; null = leave as is."""

    cap_percent: float | None
    weight: int | None
    network: NetworkOut | None
    disk_limit_mb_s: float | None


class Band(TypedDict):
    """A predicted ratio with its range; 1.0 = as alone. It is a 90 % interval where outcomes have calibrated it."""

    expected: float | None
    lower: float | None
    upper: float | None


class CpuTime(TypedDict):
    """CPU delivered to an instance, by the analytic model, also where a learned one answers."""

    share: float | None
    worst_share: float | None
    short: float | None
    short_before: NotRequired[float | None]
    overloaded: NotRequired[bool]


class EffectBasis(TypedDict):
    """What the T/B of one instance rests on where a learned model answers."""

    support: float | None
    correction: float | None
    similar: float | None
    machines: float | None
    measured: float | None
    sentence: str


class Effect(TypedDict):
    """What happens to one instance."""

    instance: str
    throughput_ratio: Band
    latency_ratio: Band
    before: NotRequired[Band | None]
    outside_training: NotRequired[bool]
    jitter_ratio: NotRequired[Band | None]
    cpu: NotRequired[CpuTime | None]
    basis: NotRequired[EffectBasis | None]


class Reason(TypedDict):
    """One part of an explanation."""

    resource: str
    share: float | None
    text: str
    neighbour: NotRequired[str | None]
    kind: NotRequired[Literal["loss", "comparison", "counterfactual", "uncertainty"]]
    finding: NotRequired[str]
    ratio: NotRequired[float | None]


class Command(TypedDict):
    """One step to apply and how to undo it; argument lists, never shell text."""

    tool: str
    argv: list[str]
    undo: list[str]
    note: NotRequired[str]


class SettingsOut(TypedDict):
    """What an instance would run under; null = leave as is."""

    pinning: dict[str, list[int]] | None
    isolation: IsolationOut


class MitigationStep(TypedDict):
    """One step of the isolation ladder as it was tried on a host where a limit would break. A last resort takes more
    than half from an instance without a limit; the same action then also occurs earlier at a milder strength."""

    action: Literal["weight", "cap", "pinning", "network", "disk", "hint", "driver_domain", "host"]
    text: str
    changes: NotRequired[dict[str, SettingsOut]]
    effects: NotRequired[list[Effect]]
    satisfies: NotRequired[bool]
    driver_cpus: NotRequired[list[int] | None]
    notes: NotRequired[list[str]]


class Headroom(TypedDict):
    """What would stay free on a host with the new VM, as parts of its capacity; below 0 = more is asked for."""

    cpu: float | None
    memory: float | None
    nic: float | None
    one_numa_node: NotRequired[bool]
    cpu_before: NotRequired[float | None]
    memory_before: NotRequired[float | None]
    nic_before: NotRequired[float | None]


class TuningStep(TypedDict):
    """One change to a host as it stands."""

    instance: str
    why: str
    settings: NotRequired[SettingsOut | None]
    driver_cpus: NotRequired[list[int]]
    driver_weight: NotRequired[int | None]
    effects: NotRequired[list[Effect]]
    commands: NotRequired[list[Command]]
    notes: NotRequired[list[str]]


class Candidate(TypedDict):
    """One host that can take the instance, with the pinning and settings that suit it best there."""

    rank: int
    host: str
    score: float | None
    combined_score: float | None
    pinning: dict[str, list[int]] | None
    isolation: IsolationOut
    new_vm: Effect
    neighbours: list[Effect]
    tied_with: NotRequired[list[str]]
    reasons: NotRequired[list[Reason]]
    commands: NotRequired[list[Command]]
    mitigation: NotRequired[list[MitigationStep]]
    changes: NotRequired[dict[str, SettingsOut]]
    headroom: NotRequired[Headroom | None]
    reserved: NotRequired[float | None]
    crowded: NotRequired[float | None]
    calibration: NotRequired[Literal["observed", "trained", "windows", "none"]]
    calibration_hosts: NotRequired[int | None]
    evidence: NotRequired[dict[str, int]]
    tuning: NotRequired[list[TuningStep]]
    notes: list[str]


class Rejection(TypedDict):
    """A host that cannot take the instance: a stable code and a sentence."""

    host: str
    code: str
    reason: str
    mitigation: NotRequired[list[MitigationStep]]


class LevelHeld(TypedDict):
    """How forecasts of such instances held in measured windows of five minutes on contended hosts of this cloud."""

    windows: int
    coverage: float
    error: float


class Evidence(TypedDict):
    """What the answer rests on."""

    level: Literal["size", "class", "given", "history", "measured", "profile"]
    advice: str
    held: NotRequired[LevelHeld | None]


class Recommendation(TypedDict):
    """The ranked answer to a question of a placement; an empty list of candidates with reasons is an answer too."""

    id: str
    created_at: str
    model_version: str
    model_origin: str
    degraded: bool
    snapshot_age_s: float | None
    candidates: list[Candidate]
    rejected: list[Rejection]
    notes: NotRequired[list[str]]
    evidence: NotRequired[Evidence | None]
    present: NotRequired[Candidate | None]
    tuned: NotRequired[list[Candidate]]
    dry_run: bool
    advised: Literal["none", "place", "stay", "settings", "move"]


class BurstFigures(TypedDict):
    """What the answers of a batch do together."""

    placed: int
    not_kept: int
    hosts_used: int
    harm: float | None


class JointSearch(TypedDict):
    """How joint answers were found, and by how much they are better than those in the order given."""

    chosen: Literal["given", "largest_first", "planned_worst", "planned_total", "planned_limits", "planned_pack"]
    tried: list[Literal["given", "largest_first", "planned_worst", "planned_total", "planned_limits", "planned_pack"]]
    ended: Literal["search", "time"]
    found: BurstFigures
    given: BurstFigures


class BatchAnswer(TypedDict):
    """The answers, each as that to one question."""

    answers: list[Recommendation]
    joint: NotRequired[JointSearch | None]


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
    objective: NotRequired[Literal["worst", "total", "limits", "pack"]]
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


class HostMemory(TypedDict):
    """A host's memory over about five minutes, as its agent measured it; null = the host does not show it."""

    stalled: NotRequired[float | None]
    swap_mb: NotRequired[float | None]
    swap_in_mb_s: NotRequired[float | None]
    swap_out_mb_s: NotRequired[float | None]
    ksm_mb: NotRequired[float | None]
    available_mb: NotRequired[float | None]
    huge_mb: NotRequired[float | None]
    huge_free_mb: NotRequired[float | None]


class VmScore(TypedDict):
    """The score of one VM: 100 x cpu x devices x memory (see advisor.scheduling.scoring)."""

    instance: str
    host: str
    score: float | None
    source: Literal["measured", "predicted"]
    cpu: float | None
    devices: float
    memory: float | None


class ScorePoint(TypedDict):
    """Scores in one window of five minutes."""

    measured: int
    mean: float | None
    lowest: float | None
    buckets: dict[str, int]
    time: str
    instances: int


class HostScoresOut(TypedDict):
    """Scores of one host."""

    measured: int
    mean: float | None
    lowest: float | None
    buckets: dict[str, int]
    host: str
    time: str
    memory: HostMemory | None
    vms: list[VmScore]
    history: list[ScorePoint]
    instances: int


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


class Activation(TypedDict):
    """One change of the model that answers."""

    at: str
    before: str
    after: str
    cause: str


class ModelOut(TypedDict):
    """A registered model with its part of the history."""

    version: str
    status: str
    created_at: str
    origin: str
    card: dict[str, Any]
    verdict: NotRequired[dict[str, Any] | None]
    history: NotRequired[list[Activation] | None]


class OutcomeBody(TypedDict):
    """What really happened after a placement: measured T/B of each instance on the host it went to."""

    host: str
    throughput_ratios: dict[str, float]


class PlacementBody(TypedDict):
    """Where should this instance go?"""

    instance: NewInstance
    hosts: NotRequired[list[str] | None]
    constraints: NotRequired[ConstraintsBody]
    objective: NotRequired[Literal["worst", "total", "limits", "pack"]]
    limit: NotRequired[int]
    explain: NotRequired[bool]
    commands: NotRequired[bool]
    dry_run: NotRequired[bool]
    mitigate: NotRequired[bool]
    tune: NotRequired[bool]


class PlanStep(TypedDict):
    """One step of a plan; at no moment is an instance below a limit that was not before."""

    instance: str
    host: str | None
    rejected: NotRequired[list[Rejection]]
    action: NotRequired[Literal["place", "move", "settings", "resize", "remove", "driver_domain"]]
    source: NotRequired[str | None]
    stage: NotRequired[int]
    why: NotRequired[str]
    gain: NotRequired[Band | None]
    score: NotRequired[float | None]
    new_vm: NotRequired[Effect | None]
    settings: NotRequired[SettingsOut | None]
    changes: NotRequired[dict[str, SettingsOut]]
    vcpus: NotRequired[int | None]
    duration_s: NotRequired[Band | None]
    commands: NotRequired[list[Command]]
    notes: NotRequired[list[str]]
    effects: NotRequired[list[Effect]]
    driver_cpus: NotRequired[list[int]]
    driver_weight: NotRequired[int | None]


class PlanSums(TypedDict):
    """A cloud in figures."""

    hosts: int
    hosts_used: int
    instances: int
    below: int
    worst: float | None
    mean: float | None
    total: float | None
    watts: NotRequired[float | None]
    price: NotRequired[float | None]
    score: NotRequired[float | None]
    score_lowest: NotRequired[float | None]
    scores: NotRequired[list[int]]


class Search(TypedDict):
    """How a plan was found."""

    aim: str
    value: float | None
    bound: float | None
    gap: float | None
    ended: Literal["optimal", "time", "search", "already fine", "in the way", "not now"]


class RunwayPoint(TypedDict):
    """The cloud some months from now."""

    month: float
    added: int
    load_factor: float
    sums: PlanSums
    fits: bool


class SpareCapacity(TypedDict):
    """How much more fits with a failover reserve."""

    hosts: int
    label: str | None
    fit: int | None
    too_many: int
    in_the_way: str


class Capacity(TypedDict):
    """How much more of the mix fits."""

    fit: int
    fit_lower: int | None
    by_rule: int
    first_refusal: str
    runs_out_month: NotRequired[float | None]
    runway: NotRequired[list[RunwayPoint]]
    spare: NotRequired[SpareCapacity | None]
    earliest_month: NotRequired[float | None]
    latest_month: NotRequired[float | None]
    asked_at: NotRequired[str | None]
    months_examined: int | None
    outlook: str


class Variant(TypedDict):
    """One of several clouds side by side."""

    name: str
    sums: PlanSums
    fit: NotRequired[int | None]
    notes: NotRequired[list[str]]
    runs_out_month: NotRequired[float | None]
    instance_days: NotRequired[float | None]


class ClassSizing(TypedDict):
    """What new numbers of vCPUs save and risk in one class of instances."""

    name: str
    instances: int
    vcpus: int
    vcpus_then: int
    short: float | None
    short_mean: float | None
    riskiest: str
    busiest: float | None


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
        Literal["admit", "rebalance", "evacuate", "consolidate", "repair", "capacity", "what_if", "right_size", "tune"]
    ]
    instances: NotRequired[list[AskedInstance]]
    empty: NotRequired[list[str]]
    hosts: NotRequired[list[str] | None]
    movable: NotRequired[list[str] | None]
    objective: NotRequired[Literal["worst", "total", "limits", "pack"]]
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


class PlanAge(TypedDict):
    """A stored plan beside the inventory of now."""

    stale: bool | None
    generation: int
    hosts: NotRequired[list[str] | None]
    instances: NotRequired[list[str] | None]


class PlanAnswer(TypedDict):
    """A plan with its question, beside the inventory of now."""

    id: str
    created_at: str
    model_version: str
    model_origin: str
    steps: list[PlanStep]
    before: dict[str, list[Effect]]
    after: dict[str, list[Effect]]
    generation: NotRequired[int | None]
    sums_before: NotRequired[PlanSums | None]
    sums_after: NotRequired[PlanSums | None]
    search: NotRequired[Search | None]
    capacity: NotRequired[Capacity | None]
    variants: NotRequired[list[Variant]]
    sizing: NotRequired[list[ClassSizing]]
    undo: NotRequired[list[PlanStep]]
    duration_s: NotRequired[Band | None]
    degraded: NotRequired[bool]
    notes: NotRequired[list[str]]
    question: PlanBody
    stale: bool | None
    age: PlanAge | None
    kind: Literal[
        "admit", "rebalance", "evacuate", "consolidate", "repair", "capacity", "what_if", "right_size", "tune"
    ]


class PlanItem(TypedDict):
    """A plan in a listing, beside the inventory of now."""

    id: str
    created_at: str
    kind: Literal[
        "admit", "rebalance", "evacuate", "consolidate", "repair", "capacity", "what_if", "right_size", "tune"
    ]
    model_version: str
    generation: NotRequired[int | None]
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


class SceneBody(TypedDict):
    """A host and the instances that share it; workloads that are not given here are looked up by name."""

    host: HostItem
    instances: list[AskedInstance]
    workloads: NotRequired[list[WorkloadItem]]


class SceneEffects(TypedDict):
    """What the instances of a scene do to each other, in the scene's order."""

    model_version: str
    model_origin: str
    degraded: bool
    effects: list[Effect]
    combined_score: float | None
    crowded: NotRequired[float | None]


class ScoreSummary(TypedDict):
    """Scores of several VMs."""

    measured: int
    mean: float | None
    lowest: float | None
    buckets: dict[str, int]
    instances: int


class HostScore(TypedDict):
    """Scores of the VMs of one host."""

    measured: int
    mean: float | None
    lowest: float | None
    buckets: dict[str, int]
    host: str
    instances: int


class ScoresOut(TypedDict):
    """Scores of the cloud."""

    time: str
    cloud: ScoreSummary
    hosts: list[HostScore]
    lowest: list[VmScore]
    history: list[ScorePoint]


class VmScorePoint(TypedDict):
    """The score of one VM in a window of five minutes."""

    time: str
    score: float | None
    source: Literal["measured", "predicted"]


class VmScoresOut(TypedDict):
    """Scores of one VM."""

    instance: str
    time: str
    now: VmScore | None
    history: list[VmScorePoint]
