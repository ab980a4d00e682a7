"""Where the driver domain runs → commands: Dom0's vCPUs on Xen, the emulator threads of every guest on KVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.domain import Command
from advisor.render import xen
from advisor.render.host_tools import HOST_TOOLS
from advisor.render.names import DEFAULT_SCHEDULER, NATIVE, SCHEDULER
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
    if target != NATIVE:
        words = f"keep the driver domain of {host.id} to CPUs {format_cpus(then)} with the host's own tools"
        yield Command(target, (), (), words)
    else:
        yield from HOST_TOOLS[host.kind].move_driver(host, now, then, residents)


def weigh(host: Host, weight: int, target: str) -> Iterator[Command]:
    """What gives the driver domain of `host` this scheduler weight, with its undo; nothing where it has that already,
    or shares the control groups of its guests."""
    if weight == host.driver_weight or not TRAITS[host.kind].driver_apart:
        return
    if target != NATIVE:
        words = f"give the driver domain of {host.id} the weight {weight} with the host's own tools"
        yield Command(target, (), (), words)
    else:
        yield from xen.weigh_driver(host, weight, host.labels.get(SCHEDULER) or DEFAULT_SCHEDULER)
