"""Isolation settings as JSON that names each field, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from profiler.observed import DEFAULT_WEIGHT, IsolationSettings, NetMode, NetworkSettings, Pinning

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
