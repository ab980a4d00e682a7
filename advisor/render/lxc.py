"""Containers: settings as cgset commands on their control groups, version 1 and 2.

cgset rather than taskset: a cpuset also holds for what the container starts later, and needs no process ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.domain import Command
from advisor.render.change import (
    Phase,
    RenderOptions,
    SettingsChange,
    Step,
    assumed_note,
    disk_limited,
    more,
    period_and_quota,
    quota_note,
    weighted,
)
from advisor.render.names import disk_number, group_path, kernel_version
from models.physics.cpu_speed import DEFAULT_US, is_short
from profiler.observed import Host, Instance, Pinning, format_cpus

BURST_SINCE = (5, 14)  # cpu.max.burst and cpu.cfs_burst_us came with Linux 5.14 (sched-bwc.rst)


def steps(change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
    """What control groups can do of a change; see `Phase` for the order."""
    group, cgroup = group_path(change.instance), options.cgroup
    yield from _pin(change, group)
    key = "cpu.shares" if cgroup == 1 else "cpu.weight"
    yield from weighted("cgset", change, options, lambda value: _cgset(group, f"{key}={value}"))
    yield from _cap(change, group, options)
    both = "control groups limit reading and writing each by itself: together they may reach twice as much"
    throttles = "in blkio.throttle.read_bps_device and blkio.throttle.write_bps_device"
    yield from disk_limited(
        "cgset",
        change,
        disk_number(change.instance),
        "its device number, such as 8:0",
        lambda disk, limit: _cgset(group, *_throttle(disk, limit, cgroup)),
        note="; ".join(filter(None, (both, assumed_note(options, throttles)))),
    )


def _cgset(group: str, *values: str) -> tuple[str, ...]:
    return ("cgset", *(part for value in values for part in ("-r", value)), "--", group)


def _pin(change: SettingsChange, group: str) -> Iterator[Step]:
    if change.desired.pinning is None:
        return
    now, then = _cpus(change, change.current.pinning), _cpus(change, change.desired.pinning)
    apart = len(set(change.desired.pinning.cpus)) > 1
    note = "a container has no vCPUs: its tasks share the CPUs of all of them" if apart else ""
    if now != then:
        # No pin is written as every CPU: version 1 refuses an empty cpuset with tasks in it (cpusets.rst), and cgset
        # an empty value. In an empty version 2 cpuset.cpus the same CPUs are in force.
        argv, undo = (_cgset(group, f"cpuset.cpus={format_cpus(cpus)}") for cpus in (then, now))
        yield Step(Phase.PIN, Command("cgset", argv, undo, note))


def _cpus(change: SettingsChange, pinning: Pinning | None) -> frozenset[int]:
    return (pinning.union if pinning else frozenset()) or change.every_cpu


def _cap(change: SettingsChange, group: str, options: RenderOptions) -> Iterator[Step]:
    cap, cgroup = change.desired.cap_percent, options.cgroup
    if cap is None:
        return
    now, then = (
        None if percent is None else period_and_quota(percent / 100, change.instance)
        for percent in (change.current.cap_percent, cap)
    )
    if now == then:
        return
    burst = is_short(change.instance) and (kernel_version(change.host) or (0, 0)) >= BURST_SINCE
    loosens = more(change.current.cap_percent, cap)
    on_version_1 = " and ".join(_bandwidth(now, then, 1, burst=burst))
    yield Step(
        Phase.LOOSEN if loosens else Phase.TIGHTEN,
        Command(
            "cgset",
            _cgset(group, *_bandwidth(now, then, cgroup, burst=burst)),
            _cgset(group, *_bandwidth(then, now, cgroup, burst=burst)),
            "; ".join(filter(None, (quota_note(cap / 100, change.instance), assumed_note(options, on_version_1)))),
        ),
    )


def _bandwidth(
    now: tuple[int, int] | None, then: tuple[int, int] | None, cgroup: int, *, burst: bool
) -> tuple[str, ...]:
    """The files in the order in which they are written, one after the other, from one (period, quota) to another.

    What widens goes first, so that no mixture is tighter than both. With `burst` an instance may spend in one period
    what it saved in others, as much again as its quota, the most that the kernel takes: it must be lowered before the
    quota and raised after it.
    """
    widens = then is None or (now is not None and then[1] > now[1])
    if cgroup == 2:
        bandwidth: tuple[str, ...] = (f"cpu.max={then[1]} {then[0]}" if then else f"cpu.max=max {DEFAULT_US}",)
        saved = "cpu.max.burst"
    else:
        period, quota = then or (DEFAULT_US, -1)
        bandwidth = (f"cpu.cfs_period_us={period}", f"cpu.cfs_quota_us={quota}")
        bandwidth = bandwidth[::-1] if widens else bandwidth
        saved = "cpu.cfs_burst_us"
    if not burst:
        return bandwidth
    spare = f"{saved}={then[1] if then else 0}"
    lowered = then is None or (now is not None and then[1] < now[1])
    return (spare, *bandwidth) if lowered else (*bandwidth, spare)


def _throttle(disk: str, limit: int | None, cgroup: int) -> tuple[str, ...]:
    if cgroup == 2:
        text = "max" if limit is None else str(limit)
        return (f"io.max={disk} rbps={text} wbps={text}",)
    return tuple(f"blkio.throttle.{way}_bps_device={disk} {limit or 0}" for way in ("read", "write"))


def interface(change: SettingsChange) -> None:
    """None: a container's network is limited on the uplink only."""
    del change


def definition(change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
    """Nothing: the managers of containers differ."""
    del change, options
    yield from ()


def migrate(instance: Instance, source: Host, target: Host) -> Command:
    """Without argv: there is no live migration."""
    text = f"a container has no live migration: stop {instance.id} on {source.id}, move its root file system, and start"
    return Command("lxc", (), (), f"{text} it on {target.id}")


def set_vcpus(former: Instance, then: Instance) -> Command:
    """Without argv: it has no vCPUs."""
    del former
    text = f"a container has no vCPUs of its own: a cap of {100 * then.vcpus} % lets {then.id} use as many CPUs"
    return Command("lxc", (), (), text)


def move_driver(
    host: Host, now: tuple[int, ...], then: tuple[int, ...], residents: Sequence[Instance]
) -> Iterator[Command]:
    """Nothing: the kernel works for containers in the time of their own tasks."""
    del host, now, then, residents
    yield from ()
