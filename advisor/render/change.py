"""What a renderer gets to do (from which settings to which, beside which others), and the steps that renderers give
back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np

from advisor.domain import Command
from advisor.errors import InvalidInput
from advisor.render.names import DISK
from models.physics.cpu_speed import MIN_QUOTA_US, is_short, period_us
from profiler.observed import DEFAULT_WEIGHT, Host, Instance, IsolationSettings, NetworkSettings, Pinning, format_cpus

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
        """The pCPUs of instances without pins: all of the host's, without isolated ones."""
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


# Weights, caps and rates in the units of tools: control groups of both versions, and limits that drop.

# Weight and cap in the kernel's units for control groups, version 1 and 2, shared by containers and libvirt.

DEFAULT_SHARES, SHARES_RANGE = (
    1024,
    (2, 262_144),
)  # cpu.shares, version 1 (kernel/sched/sched.h; libvirt's formatdomain)
DEFAULT_V2_WEIGHT, V2_WEIGHT_RANGE = 100, (1, 10_000)  # cpu.weight (cgroup-v2.rst)


def shares(weight: int) -> int:
    """Xen's weight as cpu.shares: 256 is 1024; exact on the whole scale of 1-65535."""
    return _scaled(weight, DEFAULT_SHARES, SHARES_RANGE)


def v2_weight(weight: int) -> int:
    """Xen's weight as cpu.weight: 256 is 100; rounded, and no more than 10000 (from weight 25600 on)."""
    return _scaled(weight, DEFAULT_V2_WEIGHT, V2_WEIGHT_RANGE)


def weight_note(weight: int | None, options: RenderOptions) -> str:
    """What is lost of a weight on the tool's scale, and on which version of control groups it rests where that was not
    reported: a number that raises a weight on version 2 lowers it on version 1."""
    if weight is None or options.cgroup == 1:
        return ""
    notes = []
    if weight * DEFAULT_V2_WEIGHT > V2_WEIGHT_RANGE[1] * DEFAULT_WEIGHT:
        ends = V2_WEIGHT_RANGE[1]
        notes.append(f"cpu.weight ends at {ends}, so weight {weight} counts as {ends * 256 // 100}")
    if assumed := assumed_note(options, str(shares(weight))):
        notes.append(assumed)
    return "; ".join(notes)


def assumed_note(options: RenderOptions, on_version_1: str) -> str:
    """On which version of control groups a command rests where the host did not report one, and what stands in its
    place on the other; empty = it was reported."""
    if not options.cgroup_assumed:
        return ""
    return f"for control groups version 2, which the host has not reported; on version 1 it is {on_version_1}"


def by_version(options: RenderOptions) -> Callable[[int], int]:
    """Xen's weight on the scale of the host's control groups."""
    return shares if options.cgroup == 1 else v2_weight


def weighted(
    tool: str, change: SettingsChange, options: RenderOptions, argv: Callable[[int], tuple[str, ...]]
) -> Iterator[Step]:
    """The weight on the scale of cpu.shares or of cpu.weight, by the version of control groups."""
    pair = change.weights(by_version(options))
    if pair:
        note = weight_note(change.desired.weight, options)
        yield from replaced(tool, *pair, argv, loosens=pair[1] > pair[0], note=note)


def period_and_quota(cpus: float, instance: Instance) -> tuple[int, int]:
    """(period, quota) in µs for so many CPUs, over the period that the prior assumes (models.physics.cpu_speed)."""
    period = int(period_us(np.array(cpus), np.array(is_short(instance))))
    return period, max(MIN_QUOTA_US, round(period * cpus))


def quota_note(cpus: float, instance: Instance) -> str:
    """What is lost of a cap in the kernel's units, or nothing."""
    period, quota = period_and_quota(cpus, instance)
    if quota <= period * cpus * 1.05:
        return ""
    return f"the kernel grants no less than {MIN_QUOTA_US} µs in {period} µs: {quota / period:.1%} of a CPU"


def _scaled(weight: int, default: int, limits: tuple[int, int]) -> int:
    return min(max(limits[0], round(weight * default / DEFAULT_WEIGHT)), limits[1])


# Network settings as limits that drop what is too much (libvirt's tap, Neutron, Nova, Xen's vif).

# Neutron's rule for TCP (config-qos.rst): with less a policed flow cannot grow into its rate. A burst below one frame
# of 1500 bytes lets nothing pass under OVN; libvirt's policer takes frames of up to 64 KiB.
BURST_SHARE, MIN_BURST_KBIT, MIN_BURST_KBYTE = 0.8, 12, 64


@dataclass(frozen=True, slots=True)
class Policed:
    """The most that an instance may send, in kbit/s."""

    kbit_s: int

    @property
    def kbyte_s(self) -> int:
        """Kilobytes of 1000 bytes per second, as libvirt and Nova count."""
        return max(1, round(self.kbit_s / 8))

    @property
    def burst_kbit(self) -> int:
        """What may be sent at once, in kbit."""
        return max(MIN_BURST_KBIT, math.ceil(BURST_SHARE * self.kbit_s))

    @property
    def burst_kbyte(self) -> int:
        """The same in kilobytes for libvirt's policer."""
        return max(MIN_BURST_KBYTE, math.ceil(self.burst_kbit / 8))


def policed(network: NetworkSettings | None) -> Policed | None:
    """The limit: `dedicated` keeps to its rate, `shared` may borrow up to its ceil; None = no limit."""
    if network is None or network.mode == "none":
        return None
    most = network.rate_mbit if network.mode == "dedicated" else network.ceil_mbit
    return None if most is None else Policed(max(1, round(most * 1000)))


def loosens(now: Policed | None, then: Policed | None) -> bool:
    """Whether more may be sent afterwards."""
    return more(None if now is None else now.kbit_s, None if then is None else then.kbit_s)
