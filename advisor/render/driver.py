"""Where the driver domain runs → commands: Dom0's vCPUs on Xen, the emulator threads of every guest on KVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.domain import Command
from advisor.render.host_tools import HOST_TOOLS
from profiler.host_kinds import TRAITS
from profiler.observed import Host, Instance, format_cpus


def commands(host: Host, cpus: tuple[int, ...], residents: Sequence[Instance], target: str) -> Iterator[Command]:
    """What moves the driver domain of `host` to these pCPUs, each with its undo; nothing where it is there already.

    A container's host has no driver domain, and a cloud's tools cannot say it.
    """
    everywhere = host.shared_cpus or tuple(host.cpus)
    now, then = (tuple(sorted(some or everywhere)) for some in (host.driver_cpus, cpus))
    if now == then or not TRAITS[host.kind].has_driver_domain:
        return
    if target != "native":
        words = f"keep the driver domain of {host.id} to CPUs {format_cpus(then)} with the host's own tools"
        yield Command(target, (), (), words)
    else:
        yield from HOST_TOOLS[host.kind].move_driver(host, now, then, residents)
