"""Weights, caps and rates in the units of tools: control groups of both versions, and limits that drop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from advisor.render.change import RenderOptions, SettingsChange, Step, more, replaced
from models.physics.cpu_speed import MIN_QUOTA_US, is_short, period_us
from profiler.observed import DEFAULT_WEIGHT, Instance, NetworkSettings

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
