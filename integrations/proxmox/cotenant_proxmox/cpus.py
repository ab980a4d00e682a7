"""On which kinds of CPUs a guest can run, by its `cpu` (qm.conf(5), "CPU Type") and what nodes report of theirs.

Flags are the kernel's names; levels are those of the x86-64 psABI, with what Proxmox VE adds (qemu-server,
CPUConfig.pm).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from advisor.domain.rules import ANY
from profiler.observed import REQUIRE_LABEL

CPU_MODEL = "cpu_model"  # label of hosts
LABELS = frozenset({f"{REQUIRE_LABEL}{CPU_MODEL}", f"{ANY}{CPU_MODEL}"})
_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"aes", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_LEVELS: Mapping[str, frozenset[str]] = {
    "x86-64-v2": _V2,
    "x86-64-v2-AES": _V2 | {"aes"},
    "x86-64-v3": _V3,
    "x86-64-v4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
_AMD = re.compile(r"EPYC|Opteron|phenom|athlon", re.IGNORECASE)
_INTEL = re.compile(
    r"Broadwell|Cascadelake|Conroe|Cooperlake|core2duo|coreduo|GraniteRapids|Haswell|Icelake|IvyBridge|KnightsMill|"
    r"Nehalem|Penryn|pentium|SandyBridge|SapphireRapids|SierraForest|Skylake|Westmere"
)
_LONGEST = 250  # of a label


class Nodes:
    """Model and flags of each node's CPUs, those of a node that is offline as it said them last."""

    def __init__(self) -> None:
        self._models: dict[str, str] = {}
        self._flags: dict[str, frozenset[str]] = {}  # by model: those of every node with it

    def add(self, name: str, status: Mapping[str, Any]) -> None:
        """Take note of what a node reports."""
        info = status.get("cpuinfo")
        if not isinstance(info, Mapping) or not isinstance(info.get("model"), str) or not info["model"].strip():
            return
        model, flags = info["model"].strip(), frozenset(str(info.get("flags") or "").split())
        self._models[name] = model
        self._flags[model] = flags & self._flags[model] if self._flags.get(model) else flags

    def rule(self, cpu: object, on: str) -> dict[str, str]:
        """The label of a guest on node `on` with this `cpu`; nothing where it may run on every node."""
        models = sorted(set(self._models.values()))
        options = [part.partition("=") for part in str(cpu or "").split(",")]
        kind = next((value if mark else name for name, mark, value in options if not mark or name == "cputype"), "")
        if len(models) < 2 or on not in self._models:
            return {}
        own = self._models[on]
        if kind in {"host", "max"}:
            return {f"{REQUIRE_LABEL}{CPU_MODEL}": own}
        more = next((value for name, _, value in options if name == "flags"), "")
        wanted = _LEVELS.get(kind, frozenset()) | {flag[1:] for flag in re.split(r"[;\s]+", more) if flag[:1] == "+"}
        known = frozenset().union(*self._flags.values())  # of other flags the kernel has another name, or none
        fits = [
            model
            for model in models
            if (wanted & known <= self._flags[model] or not self._flags[model]) and _is_of_vendor(kind, model)
        ]
        text = ", ".join([own, *(model for model in fits if model != own)])
        listed = own in fits and len(fits) < len(models) and len(text) <= _LONGEST and "," not in "".join(fits)
        return {f"{ANY}{CPU_MODEL}": text} if listed else {}


def _is_of_vendor(kind: str, model: str) -> bool:
    """Whether a named type is one of this CPU's vendor; a guest does not move between vendors while it runs."""
    if _AMD.match(kind):
        return "Intel" not in model
    return not (_INTEL.match(kind) and "AMD" in model)
