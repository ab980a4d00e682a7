"""Schemas of what holds an instance back: pinning, CPU cap and weight, network class, disk limit."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from api.schemas.base import WHOLE, Cpu, Positive, Schema, as_input
from profiler.observed import MAX_CPUS, MAX_WEIGHT, IsolationSettings, NetMode, NetworkSettings, Pinning


def _read_pinning(given: Any) -> Any:
    """A pinning as text, such as `0:2|1:3` in files, as the mapping; anything else as it is."""
    return pinning_map(Pinning.parse(given)) if isinstance(given, str) else given


PinningMap = Annotated[
    dict[Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,3})$")], Annotated[list[Cpu], Field(max_length=MAX_CPUS)]],
    Field(
        max_length=MAX_CPUS,
        description="vCPU → the pCPUs it may run on; an empty list means any; also as text: `0:2|1:3`",
        examples=[{"0": [2], "1": [3]}],
    ),
    BeforeValidator(_read_pinning),
]


class Network(Schema):
    """How tc treats an instance: `shared` may borrow up to `ceil_mbit`, `dedicated` keeps to `rate_mbit`."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["mode"], "properties": {"mode": {"enum": ["shared", "dedicated"]}}},
            "then": {"required": ["rate_mbit"], "properties": {"rate_mbit": {"type": "number"}}},
        }
    )

    mode: NetMode = Field(default="none", description="shared, dedicated or none")
    rate_mbit: Positive | None = Field(default=None, description="the rate it is guaranteed, in Mbit/s")
    ceil_mbit: Positive | None = Field(default=None, description="the rate it may borrow up to, in Mbit/s")


class Isolation(Schema):
    """CPU, network and disk settings; null = leave as is."""

    cap_percent: Positive | None = Field(default=None, description="CPU cap, 100 = one whole pCPU")
    weight: Annotated[int, Field(strict=True, ge=1, le=MAX_WEIGHT), WHOLE] | None = Field(
        default=None, description="CPU weight on Xen's scale, 256 = default"
    )
    network: Network | None = Field(default=None, description="its traffic class")
    disk_limit_mb_s: Positive | None = Field(default=None, description="read plus write")

    @classmethod
    def of(cls, settings: IsolationSettings) -> Isolation:
        """Everything but the pinning, which is a field of its own."""
        network = settings.network
        shown = None
        if network is not None:
            shown = Network.model_construct(mode=network.mode, rate_mbit=network.rate_mbit, ceil_mbit=network.ceil_mbit)
        return cls.model_construct(
            cap_percent=settings.cap_percent,
            weight=settings.weight,
            network=shown,
            disk_limit_mb_s=settings.disk_limit_mb_s,
        )


def pinning_map(pinning: Pinning | None) -> dict[str, list[int]] | None:
    """A pinning as JSON: vCPU number → list of pCPUs."""
    return None if pinning is None else {str(vcpu): list(cpus) for vcpu, cpus in enumerate(pinning.cpus)}


@as_input
def _checked_settings(isolation: Isolation, pinning: dict[str, list[int]] | None) -> IsolationSettings:
    return to_settings(isolation, pinning)


def to_settings(isolation: Isolation | None, pinning: dict[str, list[int]] | None) -> IsolationSettings:
    """The domain's settings from the two fields of the API; ValueError when vCPUs are not numbered without gaps."""
    fields = dict(isolation or Isolation())
    network = None if fields["network"] is None else NetworkSettings(**dict(fields["network"]))
    return IsolationSettings(**{**fields, "pinning": _to_pinning(pinning), "network": network})


def given_settings(isolation: Isolation, pinning: dict[str, list[int]] | None) -> dict[str, Any]:
    """Only those of the settings that a caller sent, as fields of IsolationSettings; InvalidInput as to_settings."""
    whole = _checked_settings(isolation, pinning)
    given = {name: getattr(whole, name) for name in isolation.model_fields_set}
    return given if pinning is None else {**given, "pinning": whole.pinning}


def _to_pinning(pinning: dict[str, list[int]] | None) -> Pinning | None:
    if not pinning:
        return None
    vcpus = sorted(int(vcpu) for vcpu in pinning)
    if vcpus != list(range(len(vcpus))):
        raise ValueError("pinning: vCPUs are not numbered from 0 without gaps")
    return Pinning(tuple(tuple(sorted(set(pinning[str(vcpu)]))) for vcpu in vcpus))
