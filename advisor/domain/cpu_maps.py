"""Isolation settings as JSON and in words, and which vCPUs run on which pCPUs of a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from profiler.observed import (
    DEFAULT_WEIGHT,
    Host,
    Instance,
    IsolationSettings,
    NetMode,
    NetworkSettings,
    Pinning,
    format_cpus,
)

CpuUse = Literal["shared", "isolated", "dedicated"]


@dataclass(frozen=True, slots=True)
class MappedCpu:
    """One pCPU: its number, what it is for, which instances are pinned to it, and whether the driver domain is."""

    number: int
    use: CpuUse
    pinned: tuple[str, ...]
    driver: bool


@dataclass(frozen=True, slots=True)
class MappedNode:
    """One NUMA node: its number, None = the host does not say, and its cores, each with its threads."""

    number: int | None
    cores: tuple[tuple[MappedCpu, ...], ...]


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """pCPUs with the same instances pinned to them, by their numbers as text."""

    cpus: str
    pinned: tuple[str, ...]
    driver: bool


@dataclass(frozen=True, slots=True)
class CpuMap:
    """The pCPUs of a host by node, those alike in groups, and which instances may run on every shared one."""

    nodes: tuple[MappedNode, ...]
    groups: tuple[CpuGroup, ...]
    anywhere: tuple[str, ...]

    def differing(self, other: CpuMap) -> frozenset[int]:
        """The numbers of pCPUs to which others are pinned in the other map of the same host."""
        one, two = (
            {cpu.number: cpu for node in each.nodes for core in node.cores for cpu in core} for each in (self, other)
        )
        return frozenset(number for number, cpu in one.items() if two.get(number) != cpu)


def cpu_map(host: Host, residents: Sequence[Instance]) -> CpuMap:
    """The pCPUs of a host with who is pinned to them; a vCPU without pins may run on every shared pCPU."""
    shared = frozenset(host.shared_cpus or host.cpus)
    reach = {one.id: _reach(one, shared) for one in sorted(residents, key=lambda one: one.id)}
    pinned = {name: cpus for name, cpus in reach.items() if cpus != shared}
    driver = frozenset(host.driver_cpus)
    uses: dict[int, CpuUse] = {}
    uses.update(dict.fromkeys(host.isolated_cpus, "isolated"))
    uses.update(dict.fromkeys(host.dedicated_cpus, "dedicated"))
    cpus = {
        number: MappedCpu(
            number,
            uses.get(number, "shared"),
            tuple(name for name, on in pinned.items() if number in on),
            number in driver,
        )
        for number in host.cpus
    }
    return CpuMap(
        tuple(_nodes(host, cpus)),
        tuple(_groups(list(cpus.values()))),
        tuple(name for name in reach if name not in pinned),
    )


def _reach(instance: Instance, shared: frozenset[int]) -> frozenset[int]:
    """The pCPUs that any vCPU of an instance may use."""
    pinning = instance.settings.pinning
    if pinning is None:
        return shared
    free = frozenset[int]() if len(pinning.cpus) >= instance.vcpus and all(pinning.cpus) else shared
    return free | pinning.named


def _nodes(host: Host, cpus: dict[int, MappedCpu]) -> Iterator[MappedNode]:
    from models.data.scene import ProfileTable, build_batch

    scene = build_batch([(host, ())], ProfileTable.build(()))
    core, node = list(host.cores), scene.node[0].tolist()
    places = sorted(range(host.pcpus), key=lambda place: (node[place], core[place], place))
    for number, of_node in groupby(places, key=lambda place: node[place]):
        cores = [tuple(of_core) for _, of_core in groupby(of_node, key=lambda place: core[place])]
        yield MappedNode(
            number if number < len(host.numa) else None,
            tuple(tuple(cpus[host.cpus[place]] for place in of_core) for of_core in cores),
        )


def _groups(cpus: Sequence[MappedCpu]) -> Iterator[CpuGroup]:
    """pCPUs to which anything is pinned, those with the same together, in the order of their first numbers."""
    by_user: dict[tuple[tuple[str, ...], bool], list[int]] = {}
    for cpu in cpus:
        if cpu.pinned or cpu.driver:
            by_user.setdefault((cpu.pinned, cpu.driver), []).append(cpu.number)
    for (pinned, driver), numbers in by_user.items():
        yield CpuGroup(format_cpus(tuple(numbers)), pinned, driver)


# Settings of an instance in the JSON of answers: the pinning by vCPU, and apart from it all else that isolates.

PinningMap = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class NetworkOut:
    """How tc treats an instance: `shared` may borrow up to `ceil_mbit`, `dedicated` keeps to `rate_mbit`."""

    mode: Annotated[NetMode, Field(description="shared, dedicated or none")]
    rate_mbit: Annotated[float | None, Field(description="the rate it is guaranteed, in Mbit/s")]
    ceil_mbit: Annotated[float | None, Field(description="the rate it may borrow up to, in Mbit/s")]


@dataclass(frozen=True, slots=True)
class IsolationOut:
    """CPU, network and disk settings; null = leave as is."""

    cap_percent: Annotated[float | None, Field(description="CPU cap, 100 = one whole pCPU")]
    weight: Annotated[int | None, Field(description="CPU weight on Xen's scale, 256 = default")]
    network: Annotated[NetworkOut | None, Field(description="its traffic class")]
    disk_limit_mb_s: Annotated[float | None, Field(description="read plus write")]


@dataclass(frozen=True, slots=True)
class SettingsOut:
    """What an instance would run under; null = leave as is."""

    pinning: Annotated[PinningMap | None, Field(description="which pCPUs each vCPU may use")]
    isolation: Annotated[IsolationOut, Field(description="CPU, network and disk settings")]


def pinning_map(pinning: Pinning) -> PinningMap:
    """The pCPUs of each vCPU."""
    return {str(vcpu): list(cpus) for vcpu, cpus in enumerate(pinning.cpus)}


def isolation_of(settings: IsolationSettings) -> IsolationOut:
    """All but the pinning."""
    network = settings.network
    shown = None if network is None else NetworkOut(network.mode, network.rate_mbit, network.ceil_mbit)
    return IsolationOut(settings.cap_percent, settings.weight, shown, settings.disk_limit_mb_s)


def _settings_of(settings: IsolationSettings) -> SettingsOut:
    pinning = None if settings.pinning is None else pinning_map(settings.pinning)
    return SettingsOut(pinning, isolation_of(settings))


def _pinning(given: Any) -> Any:
    """From the JSON of answers, or as it is stored."""
    if isinstance(given, Mapping) and "cpus" not in given:
        return Pinning(tuple(tuple(given[str(vcpu)]) for vcpu in range(len(given))))
    return given


def _settings(given: Any) -> Any:
    """From the JSON of answers, or as they are stored."""
    if isinstance(given, Mapping) and "isolation" in given:
        return {**given["isolation"], "pinning": _pinning(given.get("pinning"))}
    return given


Pins = Annotated[Pinning, BeforeValidator(_pinning), PlainSerializer(pinning_map, PinningMap, "json")]
Isolated = Annotated[IsolationSettings, BeforeValidator(_settings), PlainSerializer(isolation_of, IsolationOut, "json")]
Settings = Annotated[IsolationSettings, BeforeValidator(_settings), PlainSerializer(_settings_of, SettingsOut, "json")]


# Settings of an instance in words: pinning, cap, weight, network class and disk limit, at every front end.

AS_IS = "as is"


def settings_named(settings: IsolationSettings | None) -> list[tuple[str, str]]:
    """Every setting to make, as name and value; empty = leave everything as it is."""
    if settings is None:
        return []
    weight = settings.weight
    named = (
        ("pin", "" if settings.pinning is None else str(settings.pinning)),
        ("cap", "" if settings.cap_percent is None else f"{settings.cap_percent:g} % of a CPU"),
        ("weight", "" if weight is None else f"{weight} ({weight / DEFAULT_WEIGHT:.3g} × default)"),
        ("network", _network(settings.network)),
        ("disk", "" if settings.disk_limit_mb_s is None else f"{settings.disk_limit_mb_s:g} MB/s"),
    )
    return [(name, value) for name, value in named if value]


def settings_in_words(settings: IsolationSettings | None) -> str:
    """All of them in one phrase; AS_IS where there is none."""
    return ", ".join(f"{name} {value}" for name, value in settings_named(settings)) or AS_IS


def _network(network: NetworkSettings | None) -> str:
    if network is None or network.mode == "none":
        return ""
    most = f" up to {network.ceil_mbit:g}" if network.mode == "shared" and network.ceil_mbit else ""
    return f"{network.mode} {network.rate_mbit:g}{most} Mbit/s"
