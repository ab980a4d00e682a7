"""Moves instances in other systems, as a rebalancing plan says."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from advisor import plug_ins
from advisor.domain import Host, Instance
from advisor.errors import AdvisorError


def movers() -> tuple[str, ...]:
    """The systems in which `cotenant migrate` moves instances: entry points of the group `cotenant.movers`."""
    return plug_ins.names(plug_ins.MOVERS)


def open_mover(
    name: str, *, cloud: str | None = None, evict: bool = False, namespaces: tuple[str, ...] = (), patience_s: float
) -> Mover:
    """A mover that asked nothing yet; InvalidInput when there is none of that name."""
    made: Mover = plug_ins.load(plug_ins.MOVERS, name, "system", "system")(
        cloud, evict=evict, namespaces=namespaces, patience_s=patience_s
    )
    return made


# What is asked of whoever carries moves out, and what became of one.

Became = Literal["done", "refused", "changed", "failed", "left"]


class SystemFailed(AdvisorError):  # noqa: N818 - reads as what it says at the raise
    """The system in which instances are moved does not answer, or refuses; only commands raise it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether an instance may be moved now: `why_not` empty = it may. `name` is what its own system calls it."""

    instance: str
    name: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """What became of a move, with a sentence that says it.

    done = the instance is there; refused = a rule of the system forbids it now; changed = the system is no longer as it
    was planned for; failed = it was tried; left = it goes on after we stopped waiting.
    """

    became: Became
    sentence: str


class Mover(Protocol):
    """One system in which instances are moved, one at a time."""

    def standings(self, instances: tuple[Instance, ...]) -> tuple[Standing, ...]:
        """Of each instance that came from this system, whether it may be moved; SystemFailed."""
        ...

    def request(self, instance: Instance, target: Host, plan: str) -> Mapping[str, Any]:
        """What the system would be asked."""
        ...

    def busy(self) -> str:
        """What moves already, so that nothing else is to be moved; empty = nothing. SystemFailed."""
        ...

    def move(self, instance: Instance, source: Host, target: Host, plan: str, stop: threading.Event) -> MoveOutcome:
        """Move it from `source` to `target` and wait until it is there, or `stop` is set."""
        ...
