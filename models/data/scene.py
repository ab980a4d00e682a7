"""SceneBatch: many scenes (a host and its instances) as arrays, the input of prior, features and predictors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Ints, Once, axis_fields, over
from models.data.demand_classes import completed
from models.data.profile import WorkloadProfile
from profiler.demand import RESOURCES, Demand, Resource
from profiler.host_kinds import HOST_KINDS
from profiler.metrics import join_key, split_key
from profiler.observed import DEFAULT_WEIGHT, NET_MODES, PROBED_VALUES, Host, Instance, format_cpus

HOST_NUMBERS = ("pcpus", "threads_per_core", "cpu_mhz", "l2_mb", "l3_mb", "memory_mb", "nic_mbit")
OWN_NUMBERS = ("second_thread", "turbo_mhz", "disk_iops")  # of a host, else of its platform
# Of demand for CPUs over time (profiler.demand.Demand), what prediction reads; and of its hours the factor of the mean
# in each two hours of the day. What is shorter counts as spread of its own.
DAY_PARTS = tuple(f"day_{hour:02}" for hour in range(0, 24, 2))
CPU_DEMAND = ("mean", "spread", "common", "doubt", "open_loop", "burst_ms", *DAY_PARTS)
DEVICES = RESOURCES[1:]
DEVICE_DEMAND = ("mean", "spread", "common", "doubt")
INSTANCE = "instance "  # before an id among subjects; no workload's name begins so, for names have no blanks
_NO_DEVICE = np.full((len(DEVICES), len(DEVICE_DEMAND)), np.nan)
PROBED = "probe."  # before a probed value among the numbers of a platform, and among metrics
DISK_KINDS = ("", "hdd", "ssd", "nvme", "network")


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """Solo profiles as one matrix: `values[row, column]` in each metric's unit, nan = unknown.

    Row 0 is the unknown workload. `rows` maps (platform, workload) to a row; platform "" holds everywhere. `names` has
    the workload of every row. `platforms` has what is known of a platform beside HOST_NUMBERS, by its name; "" = of any
    that is not there. `means` are rows without a measurement: a single number for `cpu` was given.
    `subjects` has a number for each workload and instance (INSTANCE and its id) of which results were posted
    (models.learning.posted_results).
    """

    columns: tuple[str, ...]
    values: Floats
    rows: Mapping[tuple[str, str], int]
    names: tuple[str, ...]
    platforms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    means: frozenset[int] = frozenset()
    subjects: Mapping[str, int] = field(default_factory=dict)
    once: Once = field(default_factory=Once, init=False, repr=False, compare=False)

    @classmethod
    def build(
        cls, profiles: Sequence[WorkloadProfile], platforms: Mapping[str, Mapping[str, float]] | None = None
    ) -> ProfileTable:
        """Stack profiles; of two with the same platform and name the later one wins.

        A metric that was not measured on one platform is taken from the profile that holds everywhere, else from
        another platform of the same workload: a profile with few metrics must not hide one with many.
        """
        columns = tuple(sorted({_canonical(key) for profile in profiles for key in profile.metrics}))
        position = {key: column for column, key in enumerate(columns)}
        rows: dict[tuple[str, str], int] = {}
        names = [""]
        values = [np.full(len(columns), np.nan)]
        by_name: dict[str, list[int]] = {}
        for profile in profiles:
            row = np.full(len(columns), np.nan)
            for key, value in profile.metrics.items():
                row[position[_canonical(key)]] = value
            rows[profile.platform, profile.name] = len(values)
            by_name.setdefault(profile.name, []).append(len(values))
            names.append(profile.name)
            values.append(row)
        spare = {}  # by workload: what fills in for a metric that one of its profiles lacks
        for name, others in by_name.items():
            everywhere = rows.get(("", name))
            spare[name] = np.full(len(columns), np.nan)
            for other in [*([everywhere] if everywhere else []), *others]:
                spare[name] = np.where(np.isnan(spare[name]), values[other], spare[name])
        merged = np.vstack(values)
        for (_, name), at in rows.items():
            merged[at] = np.where(np.isnan(merged[at]), spare[name], merged[at])
        thin = {at for at, profile in enumerate(profiles, start=1) if is_mean(profile)}
        means = frozenset(at for at in thin if np.isfinite(merged[at]).sum() == 1)
        return cls(columns, merged, rows, tuple(names), platforms or {}, means)

    def with_profile(self, profile: WorkloadProfile) -> ProfileTable:
        """This table with a profile added as the last row; `row` does not find it by its name."""
        metrics = {_canonical(key): value for key, value in profile.metrics.items()}
        new = tuple(sorted(metrics.keys() - set(self.columns)))
        columns = (*self.columns, *new)
        grown = np.concatenate([self.values, np.full((len(self.values), len(new)), np.nan)], axis=1)
        row = np.array([[metrics.get(key, np.nan) for key in columns]])
        means = self.means | {len(grown)} if is_mean(profile) else self.means
        values, names = np.concatenate([grown, row]), (*self.names, profile.name)
        return replace(self, columns=columns, values=values, names=names, means=means)

    def row(self, workload: str | None, platform: str = "") -> int:
        """Row of a workload: as measured on `platform`, else as valid everywhere, else from any platform, else 0."""
        if not workload:
            return 0
        found = self.rows.get((platform, workload)) or self.rows.get(("", workload))
        if found:
            return found
        return next((row for (_, name), row in self.rows.items() if name == workload), 0)

    def subject(self, instance: Instance) -> int:
        """The number of an instance among `subjects`, by its workload, else by its id; 0 = nothing was posted of it."""
        if not self.subjects:
            return 0
        return self.subjects.get(instance.workload or "", 0) or self.subjects.get(INSTANCE + instance.id, 0)

    def profiled(self, rows: Ints) -> Bools:
        """Whether these rows were measured, in their shape: neither the unknown workload nor a mean."""
        return (rows > 0) & ~np.isin(rows, list(self.means)) if self.means else rows > 0

    def column(self, key: str) -> Floats:
        """Values of one metric for every row, nan where unknown or where no profile has it. Shape (rows,)."""
        if key in self.columns:
            return self.values[:, self.columns.index(key)]
        return self.once("unknown", lambda: np.full(len(self.values), np.nan))


def is_mean(profile: WorkloadProfile) -> bool:
    """Whether a profile is no measurement but one number that a user gave: the mean use of CPUs."""
    return profile.origin in {"given", "unknown"} and {_canonical(key) for key in profile.metrics} == {"cpu"}


def _canonical(key: str) -> str:
    """The canonical key of a metric: `instance.cpu` becomes `cpu`."""
    return join_key(*split_key(key))


@dataclass(frozen=True, slots=True)
class SceneBatch:
    """S scenes with up to N slots for instances and up to P pCPUs. Slots without an instance have `present` False.

    Per scene: `host_numbers` (S, 7) in the order of HOST_NUMBERS, nan = unknown; `kind` (S,) index into HOST_KINDS;
    `disk_kind` (S,); `disk_mb_s` and `mem_bw_mb_s` (S,) what disk and memory were measured to do there, nan = unknown;
    `platform` (S,) its name, "" = unknown; `probed` (S, 9) what probes found there in the order of PROBED_VALUES, nan =
    unknown; `shared` (S, P) where unpinned instances run: on all pCPUs but isolated and dedicated ones, or on all where
    there are no others; `dedicated` (S, P) pCPUs for dedicated vCPUs alone; `driver_cpus` (S, P) where the driver
    domain may run and `driver_weight` (S,) its scheduler weight; `node` (S, P) the NUMA node of each pCPU, which is one
    more than the last where no node names it; `core` (S, P) the first pCPU on the core of each (`Host.cores`);
    `own_cpus` (S,) the CPUs that the host's own work uses;
    `own_numbers` (S, 3) how fast its cores and its disk are in the order of OWN_NUMBERS, nan = unknown. Per
    slot, (S, N): `profile` row of the table, `subject` its number among those of which results were posted, `load`,
    `vcpus`, `cap` in CPUs (inf = none), `weight`, `own` how many of its vCPUs have a pCPU each
    (models.data.topology), `prompt` whether it is sensitive to latency and has a setting that is rendered
    otherwise for that: a cap (models.physics.cpu_speed) or a traffic class (models.physics.demands), `net_mode` index
    into NET_MODES, `net_rate` and `net_ceil` in Mbit/s (inf = no limit),
    `disk_limit` in MB/s (inf); `affinity` (S, N, P): the pCPUs that any vCPU of it may use. A pCPU stands at its
    position among those of its host, whatever its number (`Host.cpus`). `cpu_demand` (S, N, 18): its demand for CPUs
    over time in the order of CPU_DEMAND, nan = unknown; a known mean stands instead of that of the profile.
    `device_demand` (S, N, 3, 4): the same of DEVICES in the order of DEVICE_DEMAND.

    Each array is declared `over` its axes; those per slot with what an `empty` slot has, and those that say how an
    instance is isolated, beside its pinning, as a `setting`; those of `pcpus` have P as their last axis. `once` keeps
    what is derived from them, which are not written to after that. ValueError where an array has other axes than
    declared.
    """

    table: ProfileTable
    host_numbers: Floats = field(metadata=over("scene"))
    kind: Ints = field(metadata=over("scene"))
    disk_kind: Ints = field(metadata=over("scene"))
    disk_mb_s: Floats = field(metadata=over("scene"))
    mem_bw_mb_s: Floats = field(metadata=over("scene"))
    platform: NDArray[np.str_] = field(metadata=over("scene"))
    probed: Floats = field(metadata=over("scene"))
    shared: Bools = field(metadata=over("scene", pcpus=True))
    driver_cpus: Bools = field(metadata=over("scene", pcpus=True))
    driver_weight: Floats = field(metadata=over("scene"))
    dedicated: Bools = field(metadata=over("scene", pcpus=True))
    node: Ints = field(metadata=over("scene", pcpus=True))
    core: Ints = field(metadata=over("scene", pcpus=True))
    own_cpus: Floats = field(metadata=over("scene"))
    own_numbers: Floats = field(metadata=over("scene"))
    present: Bools = field(metadata=over("slot", empty=False))
    profile: Ints = field(metadata=over("slot", empty=0))
    subject: Ints = field(metadata=over("slot", empty=0))
    load: Floats = field(metadata=over("slot", empty=0.0))
    vcpus: Floats = field(metadata=over("slot", empty=0.0))
    cap: Floats = field(metadata=over("slot", empty=np.inf, setting=True))
    prompt: Bools = field(metadata=over("slot", empty=False, setting=True))
    weight: Floats = field(metadata=over("slot", empty=1.0, setting=True))
    own: Floats = field(metadata=over("slot", empty=0.0, setting=True))
    net_mode: Ints = field(metadata=over("slot", empty=0, setting=True))
    net_rate: Floats = field(metadata=over("slot", empty=np.inf, setting=True))
    net_ceil: Floats = field(metadata=over("slot", empty=np.inf, setting=True))
    disk_limit: Floats = field(metadata=over("slot", empty=np.inf, setting=True))
    affinity: Bools = field(metadata=over("slot", empty=False, pcpus=True))
    cpu_demand: Floats = field(metadata=over("slot", empty=np.nan))
    device_demand: Floats = field(metadata=over("slot", empty=np.nan))
    once: Once = field(default_factory=Once, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shape = self.present.shape
        for names, axes in ((SCENE_FIELDS, shape[:1]), (SLOT_FIELDS, shape[:2])):
            for name in names:
                found = getattr(self, name).shape
                if found[: len(axes)] != axes:
                    raise ValueError(f"{name} has the shape {found}, where scenes and slots are {shape}")
        width = self.affinity.shape[-1]
        for name in PCPU_FIELDS:
            if (found := getattr(self, name).shape)[-1] != width:
                raise ValueError(f"{name} has the shape {found}, where pCPUs are {width}")

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def slots(self) -> int:
        """N, the number of slots per scene."""
        return int(self.present.shape[1])

    @property
    def profiled(self) -> Bools:
        """Whose workload was measured, (S, N)."""
        return self.table.profiled(self.profile)

    @property
    def pcpus(self) -> Floats:
        """Number of pCPUs of each scene's host, (S,)."""
        return self.host_numbers[:, 0]

    @property
    def pinned(self) -> Bools:
        """Which may run elsewhere than instances without pins, (S, N)."""
        return self.once("pinned", lambda: np.asarray((self.affinity != self.shared[:, None, :]).any(axis=2)))

    @property
    def allowed(self) -> Floats:
        """How many pCPUs each slot may use, (S, N); not to be written to."""
        ones = np.ones(self.affinity.shape[2], dtype=np.float32)  # whole numbers: sums are exact in any order
        return self.once("allowed", lambda: (self.affinity.astype(np.float32) @ ones).astype(np.float64))

    @property
    def driver_pinned(self) -> Bools:
        """Where the driver domain may run elsewhere than instances without pins, (S,)."""
        return np.asarray((self.driver_cpus != self.shared).any(axis=1))

    @property
    def used_cpus(self) -> Floats:
        """Number of pCPUs on which any instance may run, (S,): isolated ones count where an instance is pinned to
        them."""
        reached = (self.affinity & self.present[:, :, None]).any(axis=1)
        return np.asarray((self.shared | reached).sum(axis=1), dtype=np.float64)

    def platform_number(self, column: str) -> Floats:
        """A further number of each scene's platform, nan where unknown; (S,). What was probed on a host itself or is
        known of it stands in place of its platform's. Not to be written to."""
        return self.once(f"platform {column}", lambda: self._platform_number(column))

    def _platform_number(self, column: str) -> Floats:
        known = {name: numbers[column] for name, numbers in self.table.platforms.items() if column in numbers}
        values = np.full(len(self), np.nan)
        if known:
            names, at = np.unique(self.platform, return_inverse=True)
            usual = known.get("", np.nan)
            values = np.array([known.get(str(name), usual) for name in names])[at]
        key = column.removeprefix(PROBED)
        if column in OWN_NUMBERS:
            own = self.own_numbers[:, OWN_NUMBERS.index(column)]
        elif key != column and key in PROBED_VALUES:
            own = self.probed[:, PROBED_VALUES.index(key)]
        else:
            return values
        return np.where(np.isnan(own), values, own)

    def take(self, scenes: Ints) -> SceneBatch:
        """The scenes with these indices, in this order; an index may repeat."""
        return SceneBatch(self.table, **{name: getattr(self, name)[scenes] for name in ARRAYS})

    def trimmed(self) -> SceneBatch:
        """Without the slots behind the last one that any scene uses."""
        slots = int(np.flatnonzero(self.present.any(axis=0)).max(initial=-1)) + 1
        if slots == self.slots:
            return self
        return replace(self, **{name: getattr(self, name)[:, :slots] for name in SLOT_FIELDS})

    def each_alone(self, scenes: Ints, slots: Ints) -> SceneBatch:
        """One scene with one slot for each pair of a scene and a slot: that instance alone on its host."""
        return SceneBatch(
            self.table,
            **{name: getattr(self, name)[scenes] for name in SCENE_FIELDS},
            **{name: getattr(self, name)[scenes, slots][:, None] for name in SLOT_FIELDS},
        )

    def with_slot(self, **values: NDArray[np.generic]) -> SceneBatch:
        """Every scene with one more instance in a new last slot; `values` holds each per-slot field, shape (S, ...)."""
        grown: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), np.asarray(value)[:, None]], axis=1)
            for name, value in values.items()
        }
        return replace(self, **grown)

    def with_last(self, **values: object) -> SceneBatch:
        """Every scene with fields of its last slot replaced by one value each."""
        changed = {name: getattr(self, name).copy() for name in values}
        for name, value in values.items():
            changed[name][:, -1] = value
        return replace(self, **changed)


SCENE_FIELDS = axis_fields(SceneBatch, "scene")
SLOT_FIELDS = axis_fields(SceneBatch, "slot")
SETTING_FIELDS = axis_fields(SceneBatch, "slot", setting=True)
PCPU_FIELDS = tuple(name for axis in ("scene", "slot") for name in axis_fields(SceneBatch, axis, pcpus=True))
ARRAYS = (*SCENE_FIELDS, *SLOT_FIELDS)
EMPTY_SLOT: Mapping[str, Any] = {
    one.name: one.metadata["empty"] for one in fields(SceneBatch) if one.name in SLOT_FIELDS
}


def stack(batches: Sequence[SceneBatch]) -> SceneBatch:
    """Batches of equal width, slots and profile table one after another."""
    if len(batches) == 1:
        return batches[0]
    return SceneBatch(
        batches[0].table,
        **{name: np.concatenate([getattr(batch, name) for batch in batches]) for name in ARRAYS},
    )


def shared_on(host: Host, width: int) -> Bools:
    """Where instances without pins run, in a batch of `width` pCPUs; (P,)."""
    shared = np.zeros(width, dtype=bool)
    shared[: host.pcpus] = True
    isolated = host.places({*host.isolated_cpus, *host.dedicated_cpus})
    if len(isolated) < host.pcpus:
        shared[isolated] = False
    return shared


def affinity_on(host: Host, instance: Instance, width: int) -> Bools:
    """The pCPUs of a host that any vCPU of an instance may use, in a batch of `width` pCPUs; (P,).

    ValueError when it is pinned to a pCPU that the host has not.
    """
    pinning = instance.settings.pinning
    if pinning is None:
        return shared_on(host, width)
    absent = host.lacks(pinning.named)
    if absent:
        raise ValueError(f"instance {instance.id} is pinned to pCPU {format_cpus(absent)}, host has {host.shown_cpus}")
    affinity = np.zeros(width, dtype=bool) if all(pinning.cpus) else shared_on(host, width)
    affinity[host.places(pinning.named)] = True
    return affinity


def slot_values(
    instance: Instance, profile: int, affinity: Bools, subject: int = 0
) -> dict[str, np.generic | NDArray[Any]]:
    """One instance as the values of a slot; `affinity` (P,) are the pCPUs that it may use, its pins are not read."""
    return {
        "present": np.bool_(True),
        "profile": np.int64(profile),
        "subject": np.int64(subject),
        "load": np.float64(instance.load),
        "vcpus": np.float64(instance.vcpus),
        **setting_values(instance),
        "affinity": affinity,
        "cpu_demand": cpu_demand(instance),
        "device_demand": device_demand(instance),
    }


def setting_values(instance: Instance) -> dict[str, np.generic]:
    """How an instance is isolated, beside its pinning, as the values of SETTING_FIELDS of a slot."""
    settings = instance.settings
    network = settings.network
    mode = network.mode if network else "none"
    rate = network.rate_mbit if network and mode != "none" and network.rate_mbit else np.inf
    ceil = rate if mode == "dedicated" else (network.ceil_mbit if network and network.ceil_mbit else np.inf)
    return {
        "cap": np.float64(settings.cap_percent / 100 if settings.cap_percent else np.inf),
        "prompt": np.bool_(instance.service == "latency" and (mode != "none" or settings.cap_percent is not None)),
        "weight": np.float64(settings.weight or DEFAULT_WEIGHT),
        "own": np.float64(instance.dedicated_vcpus),
        "net_mode": np.int64(NET_MODES.index(mode)),
        "net_rate": np.float64(rate),
        "net_ceil": np.float64(ceil),
        "disk_limit": np.float64(settings.disk_limit_mb_s or np.inf),
    }


def cpu_demand(instance: Instance) -> Floats:
    """An instance's demand for CPUs over time in the order of CPU_DEMAND, nan = unknown; (18,)."""
    of_mean = _demand_row(instance, "cpu", CPU_DEMAND[: -len(DAY_PARTS)])
    known = instance.demand.get("cpu")
    if known is None or not any(known.hours):  # a day of zeros says no more than none
        return np.concatenate([of_mean, np.full(len(DAY_PARTS), np.nan)])
    return np.concatenate([of_mean, day_parts(np.array(known.hours))])


def day_parts(hours: Floats) -> Floats:
    """Factors of the mean, mean 1, in the order of DAY_PARTS, from those of 24 or 168 hours; (12,).

    Of a week it is the mean day, whichever the day.
    """
    parts = hours.reshape(-1, len(DAY_PARTS), 24 // len(DAY_PARTS)).mean(axis=(0, 2))
    return np.asarray(parts / parts.mean())


def device_demand(instance: Instance) -> Floats:
    """An instance's demand over time for each of DEVICES, in the order of DEVICE_DEMAND, nan = unknown; (3, 4)."""
    if not instance.demand.keys() & set(DEVICES):
        return _NO_DEVICE
    return np.stack([_demand_row(instance, resource, DEVICE_DEMAND) for resource in DEVICES])


def _demand_row(instance: Instance, resource: Resource, names: Sequence[str]) -> Floats:
    """Fields of a demand, nan = unknown. What was given and not measured is widened as its class is."""
    demand: Demand | None = instance.demand.get(resource)
    if demand is None:
        return np.full(len(names), np.nan)
    if not demand.windows:
        demand = completed(demand, instance.vcpus)
    return np.array([np.nan if (value := getattr(demand, name)) is None else value for name in names])


_ANY_INSTANCE = slot_values(Instance("any"), 0, np.zeros(1, dtype=bool))


def empty_slots(shape: tuple[int, ...], width: int) -> dict[str, NDArray[Any]]:
    """Every per-slot field of empty slots in this shape, in a batch of `width` pCPUs."""
    own = {"affinity": (width,)}
    return {
        name: np.full((*shape, *own.get(name, np.shape(value))), EMPTY_SLOT[name], dtype=value.dtype)
        for name, value in _ANY_INSTANCE.items()
    }


def host_numbers(hosts: Sequence[Host], names: Sequence[str]) -> Floats:
    """Fields of each host, such as HOST_NUMBERS, nan where unknown; (H, names)."""
    values = [[np.nan if (value := getattr(host, name)) is None else value for name in names] for host in hosts]
    return np.array(values, dtype=np.float64).reshape(len(hosts), len(names))


def probed_numbers(hosts: Sequence[Host]) -> Floats:
    """What probes found on each host, in the order of PROBED_VALUES, nan where unknown; (H, 9)."""
    found = np.array([[host.probed.get(name, np.nan) for name in PROBED_VALUES] for host in hosts], dtype=np.float64)
    return found.reshape(len(hosts), len(PROBED_VALUES))


def build_batch(scenes: Sequence[tuple[Host, Sequence[Instance]]], table: ProfileTable) -> SceneBatch:
    """Turn hosts with their instances into arrays; workloads are looked up in `table` on the host's platform.

    Reference path: `advisor.snapshot` keeps such a batch and grows it without coming back here.
    ValueError when an instance is pinned to a pCPU that its host lacks.
    """
    count = len(scenes)
    slots = max([len(instances) for _, instances in scenes], default=0)
    width = max([host.pcpus for host, _ in scenes], default=1)
    columns = empty_slots((count, slots), width)
    shared, dedicated, driver = (np.zeros((count, width), dtype=bool) for _ in range(3))
    node = np.zeros((count, width), dtype=np.int64)
    core = np.tile(np.arange(width), (count, 1))
    for scene, (host, instances) in enumerate(scenes):
        shared[scene] = shared_on(host, width)
        driver[scene, host.places(host.driver_cpus) if host.driver_cpus else shared[scene]] = True
        dedicated[scene, host.places(host.dedicated_cpus)] = True
        core[scene, : host.pcpus] = host.cores
        node[scene] = len(host.numa)
        for number, cpus in enumerate(host.numa):
            node[scene, host.places(cpus)] = number
        for slot, instance in enumerate(instances):
            row = table.row(instance.workload, host.platform)
            affinity = affinity_on(host, instance, width)
            for name, value in slot_values(instance, row, affinity, table.subject(instance)).items():
                columns[name][scene, slot] = value
    return SceneBatch(
        table=table,
        host_numbers=host_numbers([host for host, _ in scenes], HOST_NUMBERS),
        kind=np.array([HOST_KINDS.index(host.kind) for host, _ in scenes], dtype=np.int64),
        disk_kind=np.array([DISK_KINDS.index(host.disk_kind) for host, _ in scenes], dtype=np.int64),
        disk_mb_s=np.array([host.disk_mb_s or np.nan for host, _ in scenes]),
        mem_bw_mb_s=np.array([host.mem_bw_mb_s or np.nan for host, _ in scenes]),
        platform=np.array([host.platform for host, _ in scenes], dtype=np.str_),
        probed=probed_numbers([host for host, _ in scenes]),
        shared=shared,
        driver_cpus=driver,
        driver_weight=np.array([float(host.driver_weight) for host, _ in scenes]),
        dedicated=dedicated,
        node=node,
        core=core,
        own_cpus=np.array([min(host.own_cpus, host.pcpus) for host, _ in scenes], dtype=np.float64),
        own_numbers=host_numbers([host for host, _ in scenes], OWN_NUMBERS),
        **columns,
    )
