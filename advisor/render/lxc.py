"""Settings → cgset commands on a container's control group, version 1 and 2.

cgset rather than taskset: a cpuset also holds for what the container starts later, and needs no process ids.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.domain import Command
from advisor.render.change import Change, Phase, Step, bytes_per_second, more, only_said, replaced
from advisor.render.groups import DEFAULT_PERIOD_US, period_and_quota, quota_note, shares, v2_weight, weight_note
from advisor.render.names import DISK, disk_number, group_path
from profiler.observed import Pinning


def steps(change: Change, cgroup: int) -> Iterator[Step]:
    """What control groups can do of a change; see `Phase` for the order."""
    group = group_path(change.instance)
    yield from _pin(change, group)
    yield from _weight(change, group, cgroup)
    yield from _cap(change, group, cgroup)
    yield from _disk(change, group, cgroup)


def _cgset(group: str, *values: str) -> tuple[str, ...]:
    return ("cgset", *(part for value in values for part in ("-r", value)), "--", group)


def _pin(change: Change, group: str) -> Iterator[Step]:
    if change.wanted.pinning is None:
        return
    now, then = _cpus(change, change.current.pinning), _cpus(change, change.wanted.pinning)
    apart = len(set(change.wanted.pinning.cpus)) > 1
    note = "a container has no vCPUs: its tasks share the CPUs of all of them" if apart else ""
    if now != then:
        # No pin is written as every CPU: version 1 refuses an empty cpuset with tasks in it (cpusets.rst), and cgset
        # an empty value. In an empty version 2 cpuset.cpus the same CPUs are in force.
        all_cpus = f"0-{change.host.pcpus - 1}" if change.host.pcpus > 1 else "0"
        argv, undo = (_cgset(group, f"cpuset.cpus={change.cpu_list(cpus, all_cpus)}") for cpus in (then, now))
        yield Step(Phase.PIN, Command("cgset", argv, undo, note))


def _cpus(change: Change, pinning: Pinning | None) -> frozenset[int]:
    return (pinning.union if pinning else frozenset()) or change.every_cpu


def _weight(change: Change, group: str, cgroup: int) -> Iterator[Step]:
    key, convert = ("cpu.shares", shares) if cgroup == 1 else ("cpu.weight", v2_weight)
    pair = change.weights(convert)
    if pair:
        yield from replaced(
            "cgset",
            *pair,
            lambda value: _cgset(group, f"{key}={value}"),
            loosens=pair[1] > pair[0],
            note=weight_note(change.wanted.weight, cgroup),
        )


def _cap(change: Change, group: str, cgroup: int) -> Iterator[Step]:
    now, then = change.current.cap_percent, change.wanted.cap_percent
    if then is None:
        return
    yield from replaced(
        "cgset",
        None if now is None else period_and_quota(now / 100),
        period_and_quota(then / 100),
        lambda pair: _cgset(group, *_bandwidth(pair, cgroup)),
        loosens=more(now, then),
        note=quota_note(then / 100),
    )


def _bandwidth(pair: tuple[int, int] | None, cgroup: int) -> tuple[str, ...]:
    if cgroup == 2:
        return (f"cpu.max={pair[1]} {pair[0]}" if pair else f"cpu.max=max {DEFAULT_PERIOD_US}",)
    period, quota = pair or (DEFAULT_PERIOD_US, -1)
    # Written one after the other: the quota goes first when it is lifted, so that no tighter mixture holds in between.
    values = (f"cpu.cfs_period_us={period}", f"cpu.cfs_quota_us={quota}")
    return values if pair else values[::-1]


def _disk(change: Change, group: str, cgroup: int) -> Iterator[Step]:
    now, then = (bytes_per_second(s.disk_limit_mb_s) for s in (change.current, change.wanted))
    if then is None or now == then:
        return
    disk = disk_number(change.instance)
    if disk is None:
        yield only_said(
            "cgset",
            f"to limit the disk of {change.instance.id}, give its device number in its label {DISK} (such as 8:0)",
        )
        return
    yield from replaced(
        "cgset",
        now,
        then,
        lambda limit: _cgset(group, *_throttle(disk, limit, cgroup)),
        loosens=more(now, then),
        note="control groups limit reading and writing each by itself: together they may reach twice as much",
    )


def _throttle(disk: str, limit: int | None, cgroup: int) -> tuple[str, ...]:
    if cgroup == 2:
        text = "max" if limit is None else str(limit)
        return (f"io.max={disk} rbps={text} wbps={text}",)
    return tuple(f"blkio.throttle.{way}_bps_device={disk} {limit or 0}" for way in ("read", "write"))
