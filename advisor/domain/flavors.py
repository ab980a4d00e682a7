"""A flavor's extra specs as fields of Cotenant's instances: settings, workload, limits and dedicated vCPUs.

The weigher and filter of Nova (`integrations/nova`) are loaded into Nova's scheduler, where no package of Cotenant is:
they have this file by a link. So it imports the standard library only, and runs on Python 3.10.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

SERVICES = ("latency", "throughput")
DEFAULT_PERIOD_US = 100_000  # libvirt's, where a quota names none
# Weights are on Xen's scale with 256 as default, cpu.weight of control groups v2 has 100 (cgroup-v2.rst).
DEFAULT_WEIGHT, DEFAULT_V2_WEIGHT, MAX_WEIGHT = 256, 100, 65_535
DEFAULT_SHARES, MOST_SHARES = 1024, 262_144.0  # cpu.shares of control groups v1 (kernel/sched/sched.h)
MOST_V2_WEIGHT = 10_000.0
_PCPU = re.compile(r"resources\d*:PCPU\Z")
_MASK_PART = re.compile(r"(?P<not>\^?)(?P<first>\d{1,4})(?:-(?P<last>\d{1,4}))?\Z")


def described(specs: Mapping[str, Any], vcpus: int) -> dict[str, Any]:
    """Fields of an instance by extra specs (Nova's resource-limits.rst, and those under `cotenant:`).

    Wrong values are left out: a server must be placed although a property of its flavor is wrong.
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
    """CPU cap in percent, 100 = one whole pCPU: each vCPU may use `quota` of every `period`, both in µs."""
    quota = _number(specs, "quota:cpu_quota", 0.0, 1e9)
    period = _number(specs, "quota:cpu_period", 0.0, 1e9) or DEFAULT_PERIOD_US
    return None if quota is None else 100.0 * vcpus * quota / period


def cpu_shares(specs: Mapping[str, Any]) -> float | None:
    """What Nova's libvirt driver writes as cpu.shares on control groups v1, as cpu.weight on v2."""
    return _number(specs, "quota:cpu_shares", 0.0, MOST_SHARES)


def _weight(specs: Mapping[str, Any]) -> int | None:
    """Weight on Xen's scale. Which version of control groups a host has is not known here; what is beyond cpu.weight
    can only be cpu.shares.
    """
    shares = cpu_shares(specs)
    if shares is None:
        return None
    default = DEFAULT_V2_WEIGHT if shares <= MOST_V2_WEIGHT else DEFAULT_SHARES
    return min(max(1, round(shares * DEFAULT_WEIGHT / default)), MAX_WEIGHT)


def _network(specs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Mbit/s that the server may send, from kB/s of 1000 bytes; more is dropped."""
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
    """A number above `above`, or from it on with `least`, and up to `most`; else None."""
    try:
        value = float(specs[name])
    except (KeyError, TypeError, ValueError):
        return None
    fits = math.isfinite(value) and value <= most and (value >= above if least else value > above)
    return value if fits else None


def dedicated_vcpus(specs: Mapping[str, Any], vcpus: int) -> int | None:
    """How many of a server's vCPUs are dedicated, None = none (Nova's cpu-topologies.rst and hw.py of its validators).

    All with `hw:cpu_policy` dedicated, those of `hw:cpu_dedicated_mask` with mixed, and as many as PCPUs are asked of
    Placement. A mask that makes no sense counts as all: Nova refuses it.
    """
    policy = str(specs.get("hw:cpu_policy", "")).lower()
    if policy == "dedicated":
        return vcpus
    if policy == "mixed":
        return _masked(str(specs.get("hw:cpu_dedicated_mask") or specs.get("hw:cpu_realtime_mask") or ""), vcpus)
    asked = [str(value) for name, value in specs.items() if _PCPU.match(str(name))]
    whole = sum(int(value) for value in asked if value.isascii() and value.isdecimal() and len(value) <= 4)
    return min(whole, vcpus) or None


def _masked(mask: str, vcpus: int) -> int:
    """vCPUs of a mask such as `0-3,^1`; one that only takes away does so from all."""
    chosen: set[int] = set()
    without: set[int] = set()
    for part in mask.replace(" ", "").split(","):
        match = _MASK_PART.match(part)
        if match is None:
            return vcpus
        cpus = range(int(match["first"]), int(match["last"] or match["first"]) + 1)
        (without if match["not"] else chosen).update(cpus)
    here = set(range(vcpus))
    return len(((chosen or here) - without) & here) or vcpus
