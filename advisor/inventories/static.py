"""Inventory, scene and instance-list files (YAML or JSON) as domain values; every error names file, line and field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from advisor.domain import (
    PINNING_POLICIES,
    Find,
    Host,
    Instance,
    Inventory,
    IsolationSettings,
    Pinning,
    Scene,
    WhatIf,
    WorkloadProfile,
    asked_about,
    found_in,
)
from advisor.errors import InvalidInput, NotFound
from advisor.inventories.document import Item, built, read_document
from advisor.render import check_labels
from advisor.validation import check_name, check_value, fitted, misfit
from models.data.dataset import DatasetError, load_dataset
from profiler.demand import RESOURCES, Demand, DemandOrigin, Resource
from profiler.host_kinds import HOST_KINDS
from profiler.metrics import join_key, split_key
from profiler.observed import (
    MAX_CPUS,
    MAX_WEIGHT,
    NET_MODES,
    PROBED_VALUES,
    DiskKind,
    NetworkSettings,
    check_id,
    format_cpus,
    parse_cpus,
)

Reader = Callable[[Item], Any]
ORIGINS = ("paper", "measured", "simulated", "given", "unknown")
SERVICES = ("latency", "throughput")

# The largest values that are taken: ten times what the largest machines have, so that a slip of units is noticed.
MAX_MEMORY_MB = 1e9
MAX_DISK_GB = 1e9
MAX_NIC_MBIT = 1e7
MAX_MB_S = 1e9
MAX_IOPS = 1e9
MAX_CPU_MHZ = 1e5
MAX_CACHE_MB = 1e5


def load_inventory(path: Path, left_out: list[str] | None = None, malformed: list[str] | None = None) -> Inventory:
    """Read hosts, instances, workloads and the profiles of datasets; InvalidInput names file, line and field.

    A workload of the file wins over a dataset's of the same name and platform. A pin to a CPU that the host lacks is
    refused as well, or, where `left_out` is given, goes there as a sentence, and the instance has what is left of it.
    Where `malformed` is given, a host, an instance, a workload or a dataset that is refused goes there as a sentence,
    and so does an instance on a host that the file does not have then.
    """
    top = read_document(path).mapping(("hosts", "instances", "workloads", "datasets", "observed_at"))
    hosts = [host for _, host in _each(top, "hosts", _host, "id", malformed=malformed)]
    instances = _placed(hosts, _each(top, "instances", _instance, "id", malformed=malformed), left_out, malformed)
    observed_at = _time(top["observed_at"]) if "observed_at" in top else None
    return Inventory(tuple(hosts), tuple(instances), _workloads(top, path.parent, malformed), observed_at)


def load_scene(path: Path, find: Find = found_in(())) -> Scene:
    """Read one `host`, the `instances` that share it, `workloads` and `datasets`; the host's id may be left out.

    The instances are as `asked_about` has them; `find` looks up a known one.
    """
    document = read_document(path)
    top = document.mapping(("host", "instances", "workloads", "datasets"))
    if "host" not in top:
        document.fail("field host is missing: a scene is one host and the instances that share it")
    host = _host(top["host"], default_id="host")
    instances = [
        _asked_about(item, find, on=host.id) for item in (top["instances"].items() if "instances" in top else ())
    ]
    if not instances:
        document.fail("field instances is missing or empty: a scene needs at least one instance")
    _check_twice(top["instances"].items(), [instance.id for instance in instances], "id")
    _placed([host], list(zip(top["instances"].items(), instances, strict=True)))
    return Scene(host, tuple(instances), _workloads(top, path.parent))


def load_instances(path: Path, find: Find = found_in(())) -> tuple[Instance, ...]:
    """Read a list of instances, a mapping with the list `instances`, or one instance, as questions name them.

    Each is as `asked_about` has it; `find` looks up a known one.
    """
    items = _asked_items(path)
    instances = [_asked_about(item, find) for item in items]
    _check_twice(items, [instance.id for instance in instances], "id")
    return tuple(instances)


def load_asked(path: Path) -> tuple[Instance, Mapping[str, Any]]:
    """The only instance of a file, and what the file says of it, as `asked_about` takes it.

    Where the file gives no vCPUs, the instance has as many as can be: how many it has, the inventory says.
    """
    items = _asked_items(path)
    if len(items) != 1:
        raise InvalidInput(f"{path} holds {len(items)} instances, one is needed; use plan for many")
    given = _given(items[0])
    instance = built(items[0], lambda: _instance_of({"vcpus": MAX_CPUS, **given}))
    _check_labels(items[0], instance)
    return instance, given


def _asked_items(path: Path) -> Sequence[Item]:
    document = read_document(path)
    if not isinstance(document.value, Mapping):
        return document.items()
    if "instances" not in document.value:
        return (document,)
    listed = document.mapping(("instances",))
    return listed["instances"].items() if "instances" in listed else ()


def _asked_about(item: Item, find: Find, *, on: str | None = None) -> Instance:
    """The instance of a question, on its host where that is one about a host; an error names its place in the file."""
    given = ({} if on is None else {"host": on}) | _given(item)
    name = given.pop("id")
    if "vcpus" not in given:
        try:
            find(name)
        except NotFound:
            sentence = f"is missing: there is no instance {name} in the inventory, so its size is needed"
            replace(item, path=f"{item.path}.vcpus".lstrip(".")).fail(sentence)
    instance = built(item, lambda: asked_about(name, given, find, on=on))
    _check_labels(item, instance)
    return instance


def _id(item: Item) -> str:
    return built(item, lambda: check_id(item.text()))


def _cpus(item: Item) -> tuple[int, ...]:
    """`0,2-3`, or a list of numbers and ranges."""
    if isinstance(item.value, str):
        text = item.text()
        return built(item, lambda: parse_cpus(text)) if text else ()
    return tuple(sorted({cpu for part in item.items() for cpu in _cpus(part)}))


def _labels(item: Item) -> Mapping[str, str]:
    return {name: value.text() for name, value in item.mapping().items()}


def _pinning(item: Item) -> Pinning | None:
    text = item.text()
    return built(item, lambda: Pinning.parse(text))


def _network(item: Item) -> NetworkSettings:
    rate = _up_to(MAX_NIC_MBIT)
    values = _read(item, {"mode": _choice(NET_MODES), "rate_mbit": rate, "ceil_mbit": rate})
    return built(item, lambda: NetworkSettings(**values))


def _up_to(high: float) -> Reader:
    return lambda item: item.number(0.0, high)


def _choice(choices: Sequence[str]) -> Reader:
    return lambda item: item.choice(choices)


HOST: Mapping[str, Reader] = {
    "id": _id,
    "kind": _choice(HOST_KINDS),
    "pcpus": Item.whole,
    "memory_mb": _up_to(MAX_MEMORY_MB),
    "threads_per_core": lambda item: item.whole(1, 16),
    "cpu_mhz": _up_to(MAX_CPU_MHZ),
    "l2_mb": _up_to(MAX_CACHE_MB),
    "l3_mb": _up_to(MAX_CACHE_MB),
    "nic_mbit": _up_to(MAX_NIC_MBIT),
    "disk_gb": _up_to(MAX_DISK_GB),
    "disk_kind": _choice(get_args(DiskKind)),
    "disk_mb_s": _up_to(MAX_MB_S),
    "mem_bw_mb_s": _up_to(MAX_MB_S),
    "numa": lambda item: tuple(map(_cpus, item.items())),
    "siblings": lambda item: tuple(map(_cpus, item.items())),
    "driver_cpus": _cpus,
    "cpu_ids": _cpus,
    "isolated_cpus": _cpus,
    "dedicated_cpus": _cpus,
    "labels": _labels,
    "enabled": Item.flag,
    "cpu_overcommit": lambda item: item.number(0.01, 1000),
    "memory_overcommit": lambda item: item.number(0.01, 1000),
    "driver_overcommit": lambda item: item.number(0.01, 1000),
    "driver_weight": lambda item: item.whole(1, MAX_WEIGHT),
    "platform": Item.text,
    "own_cpus": lambda item: item.number(0, MAX_CPUS),
    "second_thread": lambda item: item.number(0, 1),
    "turbo_mhz": _up_to(MAX_CPU_MHZ),
    "disk_iops": _up_to(MAX_IOPS),
    "probed": lambda item: {name: value.number() for name, value in item.mapping(PROBED_VALUES).items()},
}
NEEDED = ("kind", "pcpus", "memory_mb")  # of a host
SETTINGS: Mapping[str, Reader] = {
    "pinning": _pinning,
    "cap_percent": _up_to(1e6),
    "weight": lambda item: item.whole(1, MAX_WEIGHT),
    "network": _network,
    "disk_limit_mb_s": _up_to(1e6),
}
MOST_DEMAND: Mapping[Resource, float] = {
    "cpu": float(MAX_CPUS),
    "net_mbit": MAX_NIC_MBIT,
    "disk_mb_s": MAX_MB_S,
    "mem_bw_mb_s": MAX_MB_S,
}
DEMAND: Mapping[str, Callable[[float], Reader]] = {  # by the most that the resource may be
    **dict.fromkeys(("mean", "spread", "p50", "p95", "p99"), _up_to),
    "window_s": lambda _: _up_to(1e6),
    "autocorrelation_s": lambda _: _up_to(1e9),
    "hours": lambda _: lambda item: tuple(hour.number(0.0, 168.0) for hour in item.items()),
    **dict.fromkeys(("common", "open_loop"), lambda _: _up_to(1.0)),
    "burst_ms": lambda _: _up_to(1e9),
    "windows": lambda _: _up_to(1e12),
    "doubt": _up_to,
    "seen_hours": lambda _: lambda item: tuple(hour.number(0.0, 1e9) for hour in item.items()),
    "origin": lambda _: _choice(get_args(DemandOrigin)),
}


def _demand(resource: Resource) -> Reader:
    """One number, its mean, or a mapping."""

    def read(item: Item) -> Demand:
        if isinstance(item.value, str):
            return Demand(item.number(0.0, MOST_DEMAND[resource]), resource)
        readers = {name: reader(MOST_DEMAND[resource]) for name, reader in DEMAND.items()}
        values = _read(item, readers, needed=("mean",))
        return built(item, lambda: Demand(resource=resource, **values))

    return read


def _demands(item: Item) -> Mapping[Resource, Demand]:
    fields = item.mapping(RESOURCES)
    return {resource: _demand(resource)(fields[resource]) for resource in RESOURCES if resource in fields}


def _percent(item: Item) -> Demand:
    return Demand(item.number(0.0, 100.0 * MAX_CPUS) / 100)


SHORT: Mapping[str, tuple[Resource, Reader]] = {  # demand as monitoring reports it, as fields of the instance
    "cpu_percent": ("cpu", _percent),
    **{resource: (resource, _demand(resource)) for resource in RESOURCES if resource != "cpu"},
}
INSTANCE: Mapping[str, Reader] = {
    "id": _id,
    "host": _id,
    "vcpus": Item.whole,
    "memory_mb": _up_to(MAX_MEMORY_MB),
    "disk_gb": _up_to(MAX_DISK_GB),
    "workload": Item.text,
    "load": Item.number,
    **SETTINGS,
    "service": _choice(SERVICES),
    "min_throughput_ratio": Item.number,
    "max_latency_ratio": _up_to(1e6),
    "max_time_short": Item.number,
    "exclusive": Item.flag,
    "dedicated_vcpus": lambda item: item.whole(0),
    "labels": _labels,
    "demand": _demands,
    **{name: reader for name, (_, reader) in SHORT.items()},
}


def _host(item: Item, *, default_id: str | None = None) -> Host:
    values = _read(item, HOST, needed=NEEDED if default_id else ("id", *NEEDED))
    host = built(item, lambda: Host(**{"id": default_id, **values}))
    absent = host.lacks(cpu for node in host.numa for cpu in node)  # siblings are checked by the host itself
    if absent:
        item.mapping()["numa"].fail(f"names CPU {format_cpus(absent)}; the host has {host.shown_cpus}")
    _check_labels(item, host)
    return host


def _instance(item: Item) -> Instance:
    given = _given(item)
    instance = built(item, lambda: _instance_of(given))
    _check_labels(item, instance)
    return instance


def _instance_of(given: Mapping[str, Any]) -> Instance:
    return Instance(**{**given, "settings": IsolationSettings(**given.get("settings", {}))})


def _given(item: Item) -> dict[str, Any]:
    """The fields of an instance that a file has, with its settings and its demand under these names."""
    if isinstance(item.value, Mapping) and "cpu" in item.value:
        item.value["cpu"].fail("is it CPUs or per cent? Say cpu_percent (100 = one CPU), or demand: {cpu: CPUs}")
    values = _read(item, INSTANCE, needed=("id",))
    demand = dict(values.pop("demand", {}))
    for name, (resource, _) in SHORT.items():
        if name in values:
            if resource in demand:
                item.mapping()[name].fail(f"stands beside demand.{resource}; keep one of them")
            demand[resource] = values.pop(name)
    settings = {name: values.pop(name) for name in SETTINGS if name in values}
    return {**values, **({"settings": settings} if settings else {}), **({"demand": demand} if demand else {})}


def _check_labels(item: Item, labelled: Host | Instance) -> None:
    try:
        check_labels(labelled)
    except InvalidInput as error:
        labels = item.mapping()["labels"].mapping()
        labels[(error.field or "").removeprefix("labels.")].fail(error.message)


def _workload(item: Item) -> WorkloadProfile:
    readers: Mapping[str, Reader] = {
        "name": Item.text,
        "platform": Item.text,
        "metrics": _metrics,
        "origin": _choice(ORIGINS),
    }
    values = _read(item, readers, needed=("name", "metrics"))
    profile = built(item, lambda: WorkloadProfile(**values))
    try:
        check_name(profile)
    except InvalidInput as error:
        item.mapping()[error.field or "name"].fail(error.message)
    return profile


def _metrics(item: Item) -> Mapping[str, float]:
    metrics: dict[str, float] = {}
    for name, value in item.mapping().items():
        key = built(value, lambda name=name: join_key(*split_key(check_id(name, "metric"))))  # type: ignore[misc]
        if key in metrics:
            value.fail(f"is the metric {key}, which stands there already")
        metrics[key] = value.number(0.0, 1e15)
    return metrics


def _workloads(
    top: Mapping[str, Item], folder: Path, malformed: list[str] | None = None
) -> tuple[WorkloadProfile, ...]:
    own = _each(top, "workloads", _workload, "name", key=lambda one: (one.name, one.platform), malformed=malformed)
    of_datasets = _profiles(top, folder, malformed)
    profiles = {(one.name, one.platform): one for one in (*of_datasets, *(profile for _, profile in own))}
    return tuple(profiles.values())


def _profiles(top: Mapping[str, Item], folder: Path, malformed: list[str] | None) -> list[WorkloadProfile]:
    profiles: list[WorkloadProfile] = []
    for item in top["datasets"].items() if "datasets" in top else ():
        with _or_noted(malformed):
            try:
                profiles += load_dataset(folder / item.text()).profiles
            except DatasetError as error:
                item.fail(str(error))
    return profiles


@contextmanager
def _or_noted(malformed: list[str] | None) -> Iterator[None]:
    """What is refused within is a sentence in the list, if there is one."""
    try:
        yield
    except InvalidInput as error:
        if malformed is None:
            raise
        malformed.append(error.message)


def _placed(
    hosts: Sequence[Host],
    instances: Sequence[tuple[Item, Instance]],
    left_out: list[str] | None = None,
    malformed: list[str] | None = None,
) -> list[Instance]:
    """The instances, on hosts that the file has; a pin that does not fit is refused or `left_out`."""
    by_id = {host.id: host for host in hosts}
    placed = []
    for item, instance in instances:
        with _or_noted(malformed):
            if instance.host is not None and instance.host not in by_id:
                item.mapping()["host"].fail(f"there is no host {instance.host} in this file")
            host = by_id[instance.host] if instance.host is not None else None
            placed.append(instance if host is None else _fitting(item, host, instance, left_out))
    return placed


def _fitting(item: Item, host: Host, instance: Instance, left_out: list[str] | None) -> Instance:
    problem, pinning = misfit(host, [instance]), instance.settings.pinning
    if problem is None or pinning is None:
        return instance
    gaps = not host.cpu_ids and host.lacks(pinning.named)
    hint = "; if the numbers of its CPUs have gaps, list them as its cpu_ids" if gaps else ""
    left, sentence = fitted(host, instance)
    try:
        item.mapping()["pinning"].fail(f"{problem if left_out is None else sentence}{hint}")
    except InvalidInput as error:
        if left_out is None:
            raise
        left_out.append(error.message)
    return left


def _each(
    top: Mapping[str, Item],
    name: str,
    read: Reader,
    field: str,
    *,
    key: Callable[[Any], object] | None = None,
    malformed: list[str] | None = None,
) -> list[tuple[Item, Any]]:
    """The list under `name`, empty when it is missing; `key` (by default the attribute `field`) stands once only."""
    found: list[tuple[Item, Any]] = []
    first: dict[object, Item] = {}
    for item in top[name].items() if name in top else ():
        with _or_noted(malformed):
            value = read(item)
            _check_once(first, item, key(value) if key else getattr(value, field), field)
            try:
                check_value(value)
            except InvalidInput as error:
                item.fail(error.message)
            found.append((item, value))
    return found


def _check_twice(items: Sequence[Item], keys: Sequence[object], field: str) -> None:
    first: dict[object, Item] = {}
    for item, key in zip(items, keys, strict=True):
        _check_once(first, item, key, field)


def _check_once(first: dict[object, Item], item: Item, key: object, field: str) -> None:
    if key in first:
        name = " on ".join(filter(None, key)) if isinstance(key, tuple) else key
        item.mapping()[field].fail(f"{name} stands twice, first in line {first[key].line}")
    first[key] = item


def _read(item: Item, readers: Mapping[str, Reader], *, needed: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a mapping, each through its reader; fails on unknown and on missing ones."""
    fields = item.mapping(tuple(readers))
    missing = [name for name in needed if name not in fields]
    if missing:
        item.fail(f"field {missing[0]} is missing")
    return {name: readers[name](value) for name, value in fields.items()}


def _time(item: Item) -> datetime:
    text = item.text()
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        item.fail(f"{text[:40]!r} is not a time like 2026-01-02T03:04:05Z")
    return time if time.tzinfo else time.replace(tzinfo=UTC)


# What-if files (YAML or JSON): what is otherwise in a cloud that is only imagined.

READERS: Mapping[str, Reader] = {
    "hosts": lambda item: tuple(_host(host) for host in item.items()),
    "remove": lambda item: tuple(name.text() for name in item.items()),
    "cpu_overcommit": lambda item: item.number(0.01, 1000),
    "memory_overcommit": lambda item: item.number(0.01, 1000),
    "pinning": lambda item: item.choice(PINNING_POLICIES),
    "model": Item.text,
}


def load_what_if(path: Path) -> WhatIf:
    """Read `hosts`, `remove`, `cpu_overcommit`, `memory_overcommit`, `pinning` and `model`, all of them optional;
    InvalidInput names file, line and field."""
    found = read_document(path).mapping(tuple(READERS))
    values: dict[str, Any] = {name: READERS[name](item) for name, item in found.items() if not item.is_null}
    return WhatIf(**values)
