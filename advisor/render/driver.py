"""Where the driver domain runs → commands: Dom0's vCPUs on Xen, the emulator threads of every guest on KVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.domain import Command
from advisor.render.names import domain_name
from profiler.host_kinds import TRAITS
from profiler.observed import Host, Instance, format_cpus

DOM0 = "Domain-0"


def commands(host: Host, cpus: tuple[int, ...], residents: Sequence[Instance], target: str) -> Iterator[Command]:
    """What moves the driver domain of `host` to these pCPUs, each with its undo; nothing where it is there already.

    Xen: Dom0 gets as many vCPUs as pCPUs (N11 counts them so), at most those it was started with (`dom0_max_vcpus`).
    KVM: vhost threads follow the emulator's (libvirt, formatdomain, emulatorpin). A container's host has no driver
    domain, and a cloud's tools cannot say it.
    """
    everywhere = tuple(range(host.pcpus))
    now, then = (tuple(sorted(some or everywhere)) for some in (host.driver_cpus, cpus))
    if now == then or not TRAITS[host.kind].has_driver_domain:
        return
    if target != "native":
        words = f"keep the driver domain of {host.id} to CPUs {format_cpus(then)} with the host's own tools"
        yield Command(target, (), (), words)
    elif host.kind == "xen":
        fewer = len(then) < len(now)
        pin, count = _pinned(now, then, everywhere), _counted(len(now), len(then))
        yield from ((count, pin) if fewer else (pin, count)) if len(then) != len(now) else (pin,)
    else:
        for resident in residents:
            start = ("virsh", "emulatorpin", "--domain", domain_name(resident), "--live", "--cpulist")
            argv, undo = ((*start, "r" if some == everywhere else format_cpus(some)) for some in (then, now))
            yield Command("virsh", argv, undo)


def _pinned(now: tuple[int, ...], then: tuple[int, ...], everywhere: tuple[int, ...]) -> Command:
    argv, undo = (
        ("xl", "vcpu-pin", DOM0, "all", "all" if some == everywhere else format_cpus(some)) for some in (then, now)
    )
    return Command("xl", argv, undo)


def _counted(now: int, then: int) -> Command:
    whose = "" if then > now else "its undo: "
    note = f"{whose}xl refuses more vCPUs than dom0_max_vcpus of the boot line"
    return Command("xl", ("xl", "vcpu-set", DOM0, str(then)), ("xl", "vcpu-set", DOM0, str(now)), note)
