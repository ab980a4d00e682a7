"""Weight and cap in the kernel's units for control groups, version 1 and 2, shared by containers and libvirt."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from advisor.render.change import RenderOptions, SettingsChange, Step, replaced
from models.physics.cpu_speed import MIN_QUOTA_US, is_short, period_us
from profiler.observed import DEFAULT_WEIGHT, Instance

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
