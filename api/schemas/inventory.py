"""Schemas of the cloud: hosts, instances, workloads, and the whole inventory in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, Tag, model_validator

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.errors import InvalidInput
from api.schemas.base import (
    WHOLE,
    Amount,
    AnswerBody,
    Cpu,
    Cpus,
    Flag,
    Id,
    Isolation,
    Labels,
    Metrics,
    Name,
    PartOfTime,
    PinningMap,
    Platform,
    Positive,
    Ratio,
    Schema,
    Share,
    Text,
    Time,
    Times,
    WorkloadName,
    as_input,
    examples,
    pinning_map,
    same_name,
    to_settings,
)
from profiler.demand import RESOURCES, Demand, DemandOrigin, Resource
from profiler.host_kinds import HostKind
from profiler.observed import DEFAULT_WEIGHT, MAX_CPUS, MAX_WEIGHT, DiskKind

CPU_LISTS = ("driver_cpus", "cpu_ids", "isolated_cpus", "dedicated_cpus")
CPU_GROUPS = ("numa", "siblings")
CpuList = Annotated[list[Cpu], Field(max_length=MAX_CPUS)]
Service = Literal["latency", "throughput"]
T = TypeVar("T")
D = TypeVar("D")
CUT_PINS = "what is left of pins of stored instances to pCPUs that their host no longer has, a sentence each"
SIBLINGS = "pCPUs of each core that has several; empty = as threads_per_core and their numbers say"
SAME = "in a PUT it may be left out, else it must be that of the path"


class HostBody(Schema):
    """A hypervisor: what it has, and where its driver domain runs."""

    model_config = examples(
        {"kind": "xen", "pcpus": 8, "memory_mb": 65536, "nic_mbit": 1000, "driver_cpus": [0], "labels": {"zone": "a"}}
    )

    id: Id | None = Field(default=None, description=SAME)
    kind: HostKind = Field(description="the hypervisor; lxc stands for containers of any kind")
    pcpus: Cpus = Field(description="logical CPUs, hyper-threads counted")
    memory_mb: Positive = Field(description="memory for instances in MB")
    threads_per_core: Annotated[int, Field(strict=True, ge=1, le=64), WHOLE] = Field(
        default=1, description="hyper-threads that share a core"
    )
    cpu_mhz: Positive | None = Field(default=None, description="nominal clock rate in MHz")
    l2_mb: Positive | None = Field(default=None, description="second-level cache in MB")
    l3_mb: Positive | None = Field(default=None, description="last-level cache of the whole host in MB")
    nic_mbit: Positive | None = Field(default=None, description="rate of the link that instances share, in Mbit/s")
    disk_gb: Amount | None = Field(default=None, description="disk for instances in GB; null = not checked")
    disk_kind: DiskKind = Field(default="", description="what the disk is")
    disk_mb_s: Positive | None = Field(default=None, description="what its disk does for all together, measured")
    mem_bw_mb_s: Positive | None = Field(default=None, description="what its memory does for all together, measured")
    numa: list[CpuList] = Field(default=[], max_length=MAX_CPUS, description="pCPUs of each node; empty = one node")
    siblings: list[CpuList] = Field(default=[], max_length=MAX_CPUS, description=SIBLINGS)
    driver_cpus: CpuList = Field(default=[], description="pCPUs of the driver domain; empty = it may run anywhere")
    cpu_ids: CpuList = Field(default=[], description="numbers of its pCPUs where they have gaps; empty = from 0 on")
    isolated_cpus: CpuList = Field(default=[], description="pCPUs on which only what is pinned there runs")
    dedicated_cpus: CpuList = Field(default=[], description="pCPUs that serve dedicated vCPUs only, one each")
    labels: Labels = Field(default={}, description="free texts; some name bridges, domains or racks")
    enabled: Flag = Field(default=True, description="whether new instances may go there")
    cpu_overcommit: Positive = Field(default=4.0, description="vCPUs that may be promised for each pCPU")
    memory_overcommit: Positive = Field(default=1.0, description="memory that may be promised for each MB")
    driver_overcommit: Positive = Field(
        default=2.0, description="work that guests may ask of the driver domain over what its pCPUs can do"
    )
    driver_weight: Annotated[int, Field(strict=True, ge=1, le=MAX_WEIGHT), WHOLE] = Field(
        default=DEFAULT_WEIGHT, description="scheduler weight of Xen's Dom0, which xl leaves at 256"
    )
    platform: Platform = Field(default="", description="the measured platform it is like; empty = its own numbers only")
    own_cpus: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=MAX_CPUS)] = Field(
        default=0.0,
        description="CPUs that its own work uses outside of instances; what its agent measures counts first",
    )
    second_thread: Share | None = Field(
        default=None, description="what a second hyperthread adds to the work of a core; null = as its platform"
    )
    turbo_mhz: Positive | None = Field(default=None, description="highest clock rate of a core in MHz")
    disk_iops: Positive | None = Field(
        default=None, description="requests per second that its disk serves for all together; null = as its platform"
    )

    @as_input
    def to_domain(self, host_id: str) -> Host:
        """The domain's Host of that id."""
        fields = {name: getattr(self, name) for name in HostBody.model_fields if name != "id"}
        fields |= {name: tuple(tuple(sorted(set(cpus))) for cpus in getattr(self, name)) for name in CPU_GROUPS}
        fields |= {name: tuple(sorted(set(getattr(self, name)))) for name in CPU_LISTS}
        return Host(id=same_name(self.id, host_id), **fields)


class HostItem(HostBody):
    """A host with its id."""

    id: Id = Field(description="its name")

    def as_domain(self) -> Host:
        """The domain's Host."""
        return self.to_domain(self.id)

    @classmethod
    def of(cls, host: Host) -> HostItem:
        """From the domain, unchecked: what is stored was checked when it came in."""
        fields = {name: getattr(host, name) for name in cls.model_fields}
        lists = {name: list(getattr(host, name)) for name in CPU_LISTS}
        groups = {name: [list(cpus) for cpus in getattr(host, name)] for name in CPU_GROUPS}
        return cls.model_construct(**{**fields, **lists, **groups, "labels": dict(host.labels)})


class HostStored(HostItem):
    """A host as it was put."""

    notes: list[str] = Field(default=[], description=CUT_PINS)


class DemandBody(Schema):
    """What an instance would use of a resource if nothing held it back, over time: CPUs, Mbit/s or MB/s."""

    mean: Amount = Field(description="mean over time; of CPU not above the vCPUs")
    spread: Amount = Field(default=0.0, description="standard deviation between windows; 0 = not known")
    p50: Amount | None = Field(default=None, description="the demand that half of the windows stay below")
    p95: Amount | None = Field(default=None, description="the demand that 95 % of the windows stay below")
    p99: Amount | None = Field(default=None, description="the demand that 99 % of the windows stay below")
    window_s: Positive = Field(default=300.0, description="length of the windows in seconds")
    autocorrelation_s: Amount | None = Field(default=None, description="how long a window resembles the next ones")
    hours: Annotated[list[Amount], Field(max_length=168)] = Field(
        default=[], description="mean of each of 24 or 168 hours (UTC) over the mean of all; empty = unknown"
    )
    seen_hours: Annotated[list[Amount], Field(max_length=24)] = Field(
        default=[], description="windows in each of 24 hours (UTC) until a whole day was seen; else empty"
    )
    common: Share | None = Field(default=None, description="share of its variance that all instances have in common")
    windows: Amount = Field(default=0.0, description="how many windows taught it; 0 = none was measured")
    doubt: Amount = Field(default=0.0, description="standard deviation of what is not known of the mean")
    open_loop: Share | None = Field(default=None, description="share of its work that arrives whatever the service is")
    burst_ms: Amount | None = Field(default=None, description="mean CPU time of one burst in ms")
    origin: DemandOrigin = Field(
        default="given", description="where it comes from; given and trace beat what the service measures itself"
    )


def _part(demand: object) -> str:
    """Which part of `Demands` a value is checked by, as errors name it: a number is the mean, an object has its own."""
    return "" if isinstance(demand, Mapping | DemandBody) else "mean"


def _described(schema: dict[str, Any]) -> None:
    schema["anyOf"] = schema.pop("oneOf")  # as callers and their generated types know it


_Demand = Annotated[
    Annotated[Amount, Tag("mean")] | Annotated[DemandBody, Tag("")],
    Discriminator(_part),
    Field(json_schema_extra=_described),
]
Demands = Annotated[dict[Resource, _Demand], Field(max_length=len(RESOURCES))]
DEMAND = (
    "what it would use alone by resource: the mean (cpu in CPUs), or an object; left out = as others of its "
    "size; cpu_percent (100 = one CPU) stands for demand.cpu, as in files"
)


def to_demands(bodies: Mapping[Resource, float | DemandBody], vcpus: int) -> Mapping[Resource, Demand]:
    """The domain's demands; ValueError where quantiles do not grow, hours are neither 24 nor 168, or seen hours not 24.

    Measured demand that is sent back for an instance that is made smaller is no error: it is cut to `vcpus`.
    """
    demands: dict[Resource, Demand] = {}
    for resource, body in bodies.items():
        if isinstance(body, DemandBody):
            lists = {"hours": tuple(body.hours), "seen_hours": tuple(body.seen_hours)}
            demand = Demand(resource=resource, **{**dict(body), **lists})
            demands[resource] = demand.within(vcpus) if demand.origin == "measured" else demand
        else:
            demands[resource] = Demand(body, resource)
    return demands


def of_demands(demands: Mapping[Resource, Demand]) -> dict[Resource, DemandBody]:
    """From the domain, unchecked."""
    bodies: dict[Resource, DemandBody] = {}
    for resource, demand in demands.items():
        fields = {name: getattr(demand, name) for name in DemandBody.model_fields}
        lists = {"hours": list(demand.hours), "seen_hours": list(demand.seen_hours)}
        bodies[resource] = DemandBody.model_construct(**{**fields, **lists})
    return bodies


class InstanceNeeds(Schema):
    """What an instance needs beside its size and what holds it back, for one that is there and one to place."""

    disk_gb: Amount = Field(default=0.0, description="disk in GB")
    workload: Name | None = Field(default=None, description="name of a known workload; null = unknown")
    load: Annotated[float, Field(strict=True, gt=0, le=10)] = Field(
        default=1.0, description="offered load as a fraction of what it can do alone"
    )
    pinning: PinningMap | None = Field(default=None, description="which pCPUs each vCPU may use; null = any")
    isolation: Isolation = Field(default=Isolation(), description="CPU, network and disk settings that it has")
    service: Service = Field(default="throughput", description="what it is sensitive to")
    min_throughput_ratio: Ratio | None = Field(
        default=None, description="the lowest part of its uncontended speed that it accepts; null = any"
    )
    max_latency_ratio: Times | None = Field(
        default=None, description="the largest latency ratio (1.0 = as alone) that it accepts; null = any"
    )
    max_time_short: PartOfTime | None = Field(
        default=None, description="the largest part of the time, 0-1, in which it may be contended for CPU; null = any"
    )
    exclusive: Flag = Field(default=False, description="shares its host with no other instance")
    dedicated_vcpus: Annotated[int, Field(strict=True, ge=0, le=MAX_CPUS), WHOLE] = Field(
        default=0, description="how many of its vCPUs have a pCPU each that no other instance uses"
    )
    labels: Labels = Field(
        default={},
        description="free texts; some are rules (anti_affinity, affinity, require.NAME, never_move), some name domains",
    )
    demand: Demands = Field(default={}, description=DEMAND)

    @model_validator(mode="before")
    @classmethod
    def _one_demand(cls, given: Any) -> Any:
        """`cpu_percent`, as files have it, is another spelling of `demand.cpu`: nothing behind knows of two."""
        if not isinstance(given, dict) or "cpu_percent" not in given:
            return given
        percent, demand = given["cpu_percent"], given.get("demand", {})
        if not isinstance(percent, int | float) or isinstance(percent, bool) or not isinstance(demand, dict):
            raise ValueError("cpu_percent is not a number of per cent of one CPU")  # noqa: TRY004 - pydantic's word
        if "cpu" in demand:
            raise ValueError("cpu_percent stands beside demand.cpu; keep one of them")
        others = {name: value for name, value in given.items() if name != "cpu_percent"}
        return {**others, "demand": {**demand, "cpu": percent / 100}}


class InstanceBody(InstanceNeeds):
    """A VM or a container: what it needs, where it is, what holds it back."""

    model_config = examples(
        {"vcpus": 2, "memory_mb": 4096, "host": "h3", "workload": "web-1k", "pinning": {"0": [2], "1": [3]}},
        {"vcpus": 4, "memory_mb": 8192, "demand": {"cpu": {"mean": 0.4, "p95": 0.9}, "net_mbit": 20.0}},
    )

    id: Id | None = Field(default=None, description=SAME)
    vcpus: Cpus = Field(default=1, description="virtual CPUs")
    memory_mb: Amount = Field(default=0.0, description="memory in MB")
    host: Id | None = Field(default=None, description="the host it is on; null = not placed")

    @as_input
    def to_domain(self, instance_id: str) -> Instance:
        """The domain's Instance of that id."""
        same = set(InstanceBody.model_fields) - {"id", "pinning", "isolation", "demand"}
        return Instance(
            id=same_name(self.id, instance_id),
            settings=to_settings(self.isolation, self.pinning),
            demand=to_demands(self.demand, self.vcpus),
            **{name: getattr(self, name) for name in same},
        )


class InstanceItem(InstanceBody):
    """An instance with its id."""

    id: Id = Field(description="its name")

    def as_domain(self) -> Instance:
        """The domain's Instance."""
        return self.to_domain(self.id)

    @classmethod
    def of(cls, instance: Instance) -> InstanceItem:
        """From the domain, unchecked."""
        apart = {"pinning", "isolation"}
        same = {name: getattr(instance, name) for name in cls.model_fields if name not in apart}
        return cls.model_construct(
            **{**same, "labels": dict(instance.labels), "demand": of_demands(instance.demand)},
            pinning=pinning_map(instance.settings.pinning),
            isolation=Isolation.of(instance.settings),
        )


class WorkloadBody(Schema):
    """How a workload behaves alone: metric → value at load 1.0, in the metric's unit."""

    model_config = examples({"metrics": {"cpu": 62.0, "driver_domain.cpu": 31.0, "pages_exchanged": 5200.0}})

    name: WorkloadName | None = Field(default=None, description=SAME)
    metrics: Metrics = Field(
        description="eight system-level ones in the units of docs/metrics.md, and any further name"
    )
    platform: Platform = Field(default="", description="where it was measured; empty = holds on every platform")
    origin: Text = Field(default="given", description="paper, measured, simulated, given or unknown")

    @as_input
    def to_domain(self, name: str) -> WorkloadProfile:
        """The domain's profile of that name."""
        return WorkloadProfile(
            name=same_name(self.name, name), metrics=self.metrics, platform=self.platform, origin=self.origin
        )


class WorkloadItem(WorkloadBody):
    """A workload with its name."""

    name: WorkloadName = Field(description="its name")

    def as_domain(self) -> WorkloadProfile:
        """The domain's WorkloadProfile."""
        return self.to_domain(self.name)

    @classmethod
    def of(cls, workload: WorkloadProfile) -> WorkloadItem:
        """From the domain, unchecked."""
        return cls.model_construct(
            name=workload.name, metrics=dict(workload.metrics), platform=workload.platform, origin=workload.origin
        )


class InventoryBody(Schema):
    """A whole cloud as the caller sees it."""

    model_config = examples(
        {
            "hosts": [{"id": "h3", "kind": "kvm", "pcpus": 8, "memory_mb": 65536}],
            "instances": [{"id": "shop-3", "vcpus": 2, "memory_mb": 4096, "host": "h3", "workload": "web-1k"}],
            "workloads": [{"name": "web-1k", "metrics": {"cpu": 62.0, "driver_domain.cpu": 31.0}}],
            "mode": "merge",
        }
    )

    hosts: list[HostItem] = Field(default=[], description="all hosts")
    instances: list[InstanceItem] = Field(default=[], description="all instances")
    workloads: list[WorkloadItem] = Field(default=[], description="workload profiles")
    observed_at: Time | None = Field(default=None, description="when the hosts were last seen; null = now")
    mode: Literal["replace", "merge"] = Field(
        default="replace",
        description="replace: hosts and instances that are not named go away, so both lists must be sent (they may be "
        "empty), or the generation; merge: they stay",
    )
    generation: Annotated[int, Field(strict=True, ge=0, le=2**53), WHOLE] | None = Field(
        default=None, description="the generation this change was made from: 409 when it is no longer the current one"
    )

    def check_complete(self) -> None:
        """InvalidInput where it would replace a list that was not sent: that is more often forgotten than meant."""
        left_out = [name for name in ("hosts", "instances") if name not in self.model_fields_set]
        if self.mode == "replace" and left_out:
            name = left_out[0]
            message = (
                f"mode replace without {name} would delete all {name}; send the list, the generation, or mode merge"
            )
            raise InvalidInput(message, field=name)

    def to_domain(self) -> Inventory:
        """The domain's Inventory; InvalidInput names the item that is wrong."""
        return Inventory(
            hosts=each_to_domain("hosts", self.hosts, HostItem.as_domain),
            instances=each_to_domain("instances", self.instances, InstanceItem.as_domain),
            workloads=each_to_domain("workloads", self.workloads, WorkloadItem.as_domain),
            observed_at=self.observed_at,
        )


def each_to_domain(field: str, items: Sequence[T], convert: Callable[[T], D]) -> tuple[D, ...]:
    """Convert every item of a list; InvalidInput names the list and the position."""
    converted = []
    for position, item in enumerate(items):
        try:
            converted.append(convert(item))
        except InvalidInput as error:
            raise InvalidInput(error.message, field=f"{field}.{position}") from error
    return tuple(converted)


class Generation(AnswerBody):
    """The inventory's generation: it grows with every change."""

    generation: int = Field(description="grows with every change of the inventory")


class GenerationStored(Generation):
    """The generation after a change."""

    notes: list[str] = Field(default=[], description=CUT_PINS)
