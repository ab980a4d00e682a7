"""Settings → virsh commands for a running KVM domain; `--live` only: a restart brings the defined state back."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.domain import Command
from advisor.render.change import Change, Phase, Step, bytes_per_second, more, only_said, replaced
from advisor.render.groups import DEFAULT_PERIOD_US, period_and_quota, quota_note, shares, v2_weight, weight_note
from advisor.render.names import DISK, disk_target, domain_name

NO_QUOTA = -1  # any negative value (virsh(1), schedinfo)


def steps(change: Change, cgroup: int) -> Iterator[Step]:
    """What virsh can do of a change; see `Phase` for the order."""
    name = domain_name(change.instance)
    for vcpu, now, then in change.moved_vcpus():
        pin = ("virsh", "vcpupin", "--domain", name, "--vcpu", str(vcpu), "--live", "--cpulist")
        # `r` is every CPU (virsh(1), vcpupin)
        yield Step(Phase.PIN, Command("virsh", (*pin, change.cpu_list(then, "r")), (*pin, change.cpu_list(now, "r"))))
    yield from _weight(change, name, cgroup)
    yield from _cap(change, name)
    yield from _disk(change, name)


def _schedinfo(name: str, *parameters: str) -> tuple[str, ...]:
    return (
        "virsh",
        "schedinfo",
        "--domain",
        name,
        "--live",
        *(part for text in parameters for part in ("--set", text)),
    )


def _weight(change: Change, name: str, cgroup: int) -> Iterator[Step]:
    # libvirt hands cpu_shares on as they are: cpu.shares on version 1, cpu.weight on version 2 (formatdomain, shares).
    pair = change.weights(shares if cgroup == 1 else v2_weight)
    if pair:
        yield from replaced(
            "virsh",
            *pair,
            lambda value: _schedinfo(name, f"cpu_shares={value}"),
            loosens=pair[1] > pair[0],
            note=weight_note(change.wanted.weight, cgroup),
        )


def _cap(change: Change, name: str) -> Iterator[Step]:
    vcpus, now, then = change.instance.vcpus, change.current.cap_percent, change.wanted.cap_percent
    if then is None:
        return
    # vcpu_quota holds for each vCPU alone (formatdomain, quota), so the instance's cap is divided among them.
    note = quota_note(then / 100 / vcpus)
    if vcpus > 1 and not note:
        note = f"the cap of {then:g} % is divided among {vcpus} vCPUs: one busy vCPU alone gets {then / vcpus:g} %"
    yield from replaced(
        "virsh",
        (DEFAULT_PERIOD_US, NO_QUOTA) if now is None else period_and_quota(now / 100 / vcpus),
        period_and_quota(then / 100 / vcpus),
        lambda pair: _schedinfo(name, f"vcpu_period={pair[0]}", f"vcpu_quota={pair[1]}"),
        loosens=more(now, then),
        note=note,
    )


def _disk(change: Change, name: str) -> Iterator[Step]:
    now, then = (bytes_per_second(s.disk_limit_mb_s) for s in (change.current, change.wanted))
    if then is None or now == then:
        return
    disk = disk_target(change.instance)
    if disk is None:
        yield only_said("virsh", f"to limit the disk of {name}, say which one it is in its label {DISK} (such as vda)")
        return
    tune = ("virsh", "blkdeviotune", "--domain", name, "--device", disk, "--live", "--total-bytes-sec")
    yield from replaced("virsh", now, then, lambda limit: (*tune, str(limit or 0)), loosens=more(now, then))
