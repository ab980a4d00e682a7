"""Which vCPUs of a server of OpenStack have a pCPU each, by its flavor's extra specs; values only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PCPU = re.compile(r"resources\d*:PCPU\Z")
_MASK_PART = re.compile(r"(?P<not>\^?)(?P<first>\d{1,4})(?:-(?P<last>\d{1,4}))?\Z")


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
