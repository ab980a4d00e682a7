"""What a renderer gets to do (from which settings to which, beside which others), and the steps that renderers give
back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from advisor.domain import Command
from advisor.errors import InvalidInput
from advisor.render.names import DISK
from profiler.observed import DEFAULT_WEIGHT, Host, Instance, IsolationSettings, Pinning, format_cpus

T = TypeVar("T")


class Phase(IntEnum):
    """When a command runs.

    Pins come first: they decide which others the instance can disturb at all. A weight or cap that is raised before
    would fall on the CPUs that it is about to leave, and a new cap would throttle it there with no instance gaining
    from it. Then what loosens, then what tightens: so it is never held by an old limit that goes and a new one that
    comes at once.
    """

    PIN = 0
    LOOSEN = 1
    TIGHTEN = 2
    NOTE = 3


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """What commands depend on beside host and instance: Xen's `scheduler`, the version of control groups (`cgroup`) on
    Linux (`cgroup_assumed`: the host does not say which), and the `uplink` that tc shapes, None = as the host's labels
    say."""

    scheduler: str
    cgroup: int
    uplink: str | None
    cgroup_assumed: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A command and when it runs; `needs` is what must be known before it can be rendered, "" = nothing."""

    phase: Phase
    command: Command
    needs: str = ""


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """What is asked of a renderer. None in `desired` = leave as is; None in `current` = the tool's own default.

    `comes` = the instance is yet to start on the host, so that nothing holds for it there.
    """

    host: Host
    instance: Instance
    current: IsolationSettings
    desired: IsolationSettings
    comes: bool = False

    def __post_init__(self) -> None:
        pinning = self.desired.pinning
        if pinning is None:
            return
        if len(pinning.cpus) > self.instance.vcpus:
            raise InvalidInput(
                f"instance {self.instance.id} has {self.instance.vcpus} vCPUs, the pinning names {len(pinning.cpus)}",
                field="pinning",
            )
        absent = self.host.lacks(pinning.named)
        if absent:
            raise InvalidInput(
                f"instance {self.instance.id} cannot be pinned to pCPU {format_cpus(absent)}: host {self.host.id} has "
                f"{self.host.shown_cpus}",
                field="pinning",
            )

    def differs(self, setting: str) -> bool:
        """Whether a field of IsolationSettings is to be another than it is."""
        return getattr(self.desired, setting) not in (None, getattr(self.current, setting))

    @property
    def every_cpu(self) -> frozenset[int]:
        """The pCPUs of who is not pinned: all of the host's, without isolated ones."""
        return frozenset(self.host.shared_cpus or self.host.cpus)

    def pinned(self, pinning: Pinning | None) -> bool:
        """Whether any vCPU may not run everywhere."""
        return any(self.allowed(pinning, vcpu) != self.every_cpu for vcpu in range(self.instance.vcpus))

    def moved_vcpus(self) -> Iterator[tuple[int, frozenset[int], frozenset[int]]]:
        """(vCPU, pCPUs now, pCPUs wanted) for each vCPU that moves; those that no pin is wanted for stay."""
        if self.desired.pinning is None:
            return
        for vcpu in range(len(self.desired.pinning.cpus)):
            now, then = self.allowed(self.current.pinning, vcpu), self.allowed(self.desired.pinning, vcpu)
            if now != then:
                yield vcpu, now, then

    def allowed(self, pinning: Pinning | None, vcpu: int) -> frozenset[int]:
        """The pCPUs that a vCPU may run on; unpinned is every one that is not isolated."""
        cpus = pinning.cpus[vcpu] if pinning is not None and vcpu < len(pinning.cpus) else ()
        return frozenset(cpus) or self.every_cpu

    def cpu_list(self, cpus: frozenset[int], anywhere: str) -> str:
        """CPUs as the tools read them; `anywhere` is the tool's word for every CPU of the host."""
        return anywhere if cpus == frozenset(self.host.cpus) else format_cpus(cpus)

    def weights(self, convert: Callable[[int], int]) -> tuple[int, int] | None:
        """(now, wanted) on the tool's scale, or None where nothing is wanted."""
        if self.desired.weight is None:
            return None
        return convert(self.current.weight or DEFAULT_WEIGHT), convert(self.desired.weight)


def replaced(
    tool: str, now: T, then: T, argv: Callable[[T], tuple[str, ...]], *, loosens: bool, note: str = ""
) -> Iterator[Step]:
    """The step from one value to the other with its undo; none where they are equal on the tool's own scale."""
    if now != then:
        yield Step(Phase.LOOSEN if loosens else Phase.TIGHTEN, Command(tool, argv(then), argv(now), note))


def disk_limited(
    tool: str,
    change: SettingsChange,
    disk: str | None,
    label: str,
    argv: Callable[[str, int | None], tuple[str, ...]],
    note: str = "",
) -> Iterator[Step]:
    """The limit in bytes per second, of a `disk` that is named; None = what its `label` should hold is said."""
    now, then = (bytes_per_second(settings.disk_limit_mb_s) for settings in (change.current, change.desired))
    if then is None or now == then:
        return
    if disk is None:
        lacks = f"label {DISK} on instance {change.instance.id}"
        yield only_said(tool, f"to limit its disk: needs {lacks} ({label})", needs=lacks)
        return
    yield from replaced(tool, now, then, lambda limit: argv(disk, limit), loosens=more(now, then), note=note)


def more(now: float | None, then: float | None) -> bool:
    """Whether the instance may use more afterwards; None = no limit."""
    return (math.inf if then is None else then) > (math.inf if now is None else now)


def bytes_per_second(limit_mb_s: float | None) -> int | None:
    """A limit in MB/s (10**6 bytes) as bytes per second, None = no limit."""
    return None if limit_mb_s is None else max(1, round(limit_mb_s * 1e6))


def backwards(commands: tuple[Command, ...]) -> tuple[Command, ...]:
    """The same steps the other way round; a note stays with what cannot be taken back by itself."""
    return tuple(Command(c.tool, c.undo, c.argv, "" if c.undo else c.note) for c in reversed(commands) if c.argv)


def only_said(tool: str, note: str, *, needs: str = "") -> Step:
    """A setting that cannot be rendered: nothing to run, a sentence why; `needs` as in Step."""
    return Step(Phase.NOTE, Command(tool, (), (), note), needs)
