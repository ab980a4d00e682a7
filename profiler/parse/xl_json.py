"""JSON of `xl list -l` into what domains were configured with; no I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from profiler.parse.text import ParseError
from profiler.parse.xl import MAX_DOMID

_WHAT = "xl list -l"


@dataclass(frozen=True, slots=True)
class ConfiguredDomain:
    """A domain's configuration as xl stores it; None = not set.

    `pinning` holds the hard affinity of each vCPU; `cap_percent` 0 = no cap.
    """

    name: str
    kind: str
    max_vcpus: int | None
    memory_kb: int | None
    weight: int | None
    cap_percent: int | None
    pinning: tuple[tuple[int, ...], ...]
    macs: tuple[str, ...]


def parse_xl_long(text: str, where: str = "") -> dict[int, ConfiguredDomain]:
    """Read `xl list -l`: configurations by domain."""
    try:
        document = json.loads(text)
        return {_domid(entry["domid"]): _domain(entry["config"]) for entry in document}
    except RecursionError:
        raise ParseError(_WHAT, where, 1, "it is nested too deeply") from None
    except KeyError as missing:
        raise ParseError(_WHAT, where, 1, f"there is no {missing.args[0]}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ParseError(_WHAT, where, 1, f"it is not the JSON of xl: {error}") from None


def _domid(value: object) -> int:
    number = _whole(value)
    if number is None or not 0 <= number < MAX_DOMID:
        raise ValueError(f"{value!r} is no domain")
    return number


def _whole(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{str(value)[:60]!r} is not a whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:60]!r} is not a text")
    return value


def _domain(config: dict[str, Any]) -> ConfiguredDomain:
    created, built = config["c_info"], config["b_info"]
    shares = built.get("sched_params", {})
    pinning = tuple(tuple(_domid(cpu) for cpu in cpus) for cpus in built.get("vcpu_hard_affinity", ()))
    return ConfiguredDomain(
        _text(created["name"]),
        _text(created["type"]),
        _whole(built.get("max_vcpus")),
        _whole(built.get("max_memkb")),
        _whole(shares.get("weight")),
        _whole(shares.get("cap")),
        pinning,
        tuple(_text(nic["mac"]) for nic in config.get("nics", ())),
    )
