"""A flavor's extra specs as what they say of an instance: its limits, its workload and what it accepts.

The weigher in `integrations/nova` has a copy of this, for neither may import the other; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from advisor.domain import dedicated_vcpus
from advisor.inventories.reading import CpuShares

SERVICES = ("latency", "throughput")
DEFAULT_PERIOD_US = 100_000  # libvirt's, where a quota names none
MOST_SHARES = 262_144.0  # of cpu.shares (kernel/sched/sched.h)


def described(specs: Mapping[str, Any], vcpus: int) -> dict[str, Any]:
    """Fields of an instance by extra specs (Nova's resource-limits.rst, and those under `cotenant:`).

    What makes no sense is left out: a wrong property must not keep a server from being placed.
    """
    fields = {
        "workload": _text(specs, "cotenant:workload"),
        "service": _choice(specs, "cotenant:service"),
        "load": _number(specs, "cotenant:load", 0.0, 10.0),
        "min_throughput_ratio": _number(specs, "cotenant:min_throughput_ratio", 0.0, 1.0),
        "max_latency_ratio": _number(specs, "cotenant:max_latency_ratio", 1.0, 1e6, least=True),
        "max_time_short": _number(specs, "cotenant:max_time_short", 0.0, 0.999, least=True),
        "exclusive": {"true": True, "false": None}.get(str(specs.get("cotenant:exclusive", "")).lower()),
        "dedicated_vcpus": dedicated_vcpus(specs, vcpus),
        "isolation": _isolation(specs, vcpus),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _isolation(specs: Mapping[str, Any], vcpus: int) -> dict[str, Any] | None:
    settings = {
        "cap_percent": _cap(specs, vcpus),
        "weight": _weight(specs),
        "network": _network(specs),
        "disk_limit_mb_s": _disk(specs),
    }
    return {name: value for name, value in settings.items() if value is not None} or None


def _cap(specs: Mapping[str, Any], vcpus: int) -> float | None:
    """Each vCPU may use quota of period, µs; 100 = one whole pCPU."""
    quota = _number(specs, "quota:cpu_quota", 0.0, 1e9)
    period = _number(specs, "quota:cpu_period", 0.0, 1e9) or DEFAULT_PERIOD_US
    return None if quota is None else 100.0 * vcpus * quota / period


def cpu_shares(specs: Mapping[str, Any]) -> CpuShares | None:
    """What Nova's libvirt driver hands on: cpu.shares on control groups v1, cpu.weight on v2."""
    shares = _number(specs, "quota:cpu_shares", 0.0, MOST_SHARES)
    return None if shares is None else CpuShares(shares)


def _weight(specs: Mapping[str, Any]) -> int | None:
    """On a host that is not known yet."""
    shares = cpu_shares(specs)
    return None if shares is None else shares.weight(None)


def _network(specs: Mapping[str, Any]) -> dict[str, Any] | None:
    """kB/s of 1000 bytes that the server may send; what is more is dropped."""
    average = _number(specs, "quota:vif_outbound_average", 0.0, 1e9)
    return None if average is None else {"mode": "dedicated", "rate_mbit": average * 8 / 1000}


def _disk(specs: Mapping[str, Any]) -> float | None:
    """MB/s of reads and writes together."""
    total = _number(specs, "quota:disk_total_bytes_sec", 0.0, 1e15)
    if total is None:
        read, write = (_number(specs, f"quota:disk_{way}_bytes_sec", 0.0, 1e15) for way in ("read", "write"))
        total = None if read is None or write is None else read + write
    return None if total is None else total / 1e6


def _text(specs: Mapping[str, Any], name: str) -> str | None:
    value = specs.get(name)
    return value if isinstance(value, str) and 1 <= len(value) <= 255 and value.isprintable() else None


def _choice(specs: Mapping[str, Any], name: str) -> str | None:
    value = specs.get(name)
    return value if value in SERVICES else None


def _number(specs: Mapping[str, Any], name: str, above: float, most: float, *, least: bool = False) -> float | None:
    """A number over `above` (or from it on, where it is the `least`) and up to `most`."""
    try:
        value = float(specs[name])
    except (KeyError, TypeError, ValueError):
        return None
    fits = math.isfinite(value) and value <= most and (value >= above if least else value > above)
    return value if fits else None
