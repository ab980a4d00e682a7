"""Reads queueing disciplines: the lab's own with their drops, and the host's, which a campaign must not change."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from lab.errors import ToolError
from lab.processes import call
from lab.resource_registry import ResourceRegistry

_DROPPED = re.compile(r"\(dropped (\d+),")
_COUNTS = re.compile(r" direct_packets_stat \d+")  # a count among the settings
_AUTOMATIC = re.compile(r"\b[89a-f][0-9a-f]{3}:(?=\s|$)")  # handles that the kernel numbers itself (tc(8), HANDLES)
_DIGEST = 12


@dataclass(frozen=True, slots=True)
class Qdiscs:
    """Settings of all qdiscs and classes of the lab's switch as `tc` prints them, and packets dropped so far."""

    text: str
    dropped: int

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:_DIGEST]


def lab_qdiscs(registry: ResourceRegistry) -> Qdiscs | None:
    """Those in the namespace of the lab's switch; None where there is none, or no tc."""
    switch = registry.network("switch")
    try:
        shown = call(["tc", "-n", switch, "-s", "qdisc", "show"])
        classes = call(["tc", "-n", switch, "class", "show", "dev", "uplink"])
    except ToolError:
        return None
    lines = [_COUNTS.sub("", line).strip() for line in shown.splitlines() if line.startswith("qdisc ")]
    text = "\n".join([*lines, *(line.strip() for line in classes.splitlines() if line)])
    return Qdiscs(_AUTOMATIC.sub("auto:", text), sum(int(count) for count in _DROPPED.findall(shown)))


def host_qdiscs() -> list[str] | None:
    """One line per qdisc of the host's own interfaces, sorted; None where tc fails."""
    try:
        return sorted(line.strip() for line in call(["tc", "qdisc", "show"]).splitlines() if line.strip())
    except ToolError:
        return None


def compare(before: list[str] | None, after: list[str] | None) -> str:
    """Whether the host's qdiscs are as they were, in words."""
    if before is None or after is None:
        return "unknown: tc does not show them"
    gone, new = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    if not gone and not new:
        return "the same"
    return "; ".join([*(f"gone: {line}" for line in gone), *(f"new: {line}" for line in new)])
