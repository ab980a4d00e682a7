"""Settings → commands with their undo; only rendering, nothing here runs a command or reads a host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from advisor.domain import Command
from advisor.errors import InvalidInput
from advisor.render import libvirt, lxc, tc, xen
from advisor.render.change import Change, Step
from profiler.observed import Host, Instance, IsolationSettings

__all__ = ["commands"]


def commands(
    host: Host,
    instance: Instance,
    current: IsolationSettings,
    wanted: IsolationSettings,
    *,
    scheduler: str = "credit2",
    cgroup: int = 2,
    uplink: str | None = None,
    neighbours: Sequence[Instance] | None = None,
) -> tuple[Command, ...]:
    """What to run on `host` so that `instance` goes from `current` to `wanted`, in this order; undo goes backwards.

    Only what differs is rendered. None in `wanted` leaves a setting as it is; None in `current` is the default: no pin,
    no cap, weight 256, no class. A setting that the host's tools cannot express, or only after something is filled in,
    is a Command without argv whose note says so.

    `scheduler` is Xen's (credit or credit2), `cgroup` the version of control groups on Linux (1 or 2), `uplink` the
    interface out of the host (else the host's label `uplink`). `neighbours` are the other instances on the host, None
    = not known; they decide whether the uplink's tree is there already. Of the instance's labels `mac` steers its
    traffic, `disk` names its disk (`vda`, or `8:0` for a container) and `cgroup` a container's group.

    Raises InvalidInput for a name that a tool would read as an option, a path or another domain, and for a pinning that
    does not fit the instance or the host.
    """
    if cgroup not in (1, 2):
        raise InvalidInput(f"control groups have version 1 or 2, not {cgroup}", field="cgroup")
    if all(getattr(wanted, f.name) in (None, getattr(current, f.name)) for f in fields(wanted)):
        return ()
    change = Change(host, instance, current, wanted)
    steps = [*_of_kind(change, scheduler, cgroup), *tc.steps(change, uplink, neighbours)]
    # Stable: within a phase as written. Network limits come after CPU and disk, they disturb the most when wrong.
    return tuple(step.command for step in sorted(steps, key=lambda step: step.phase))


def _of_kind(change: Change, scheduler: str, cgroup: int) -> Iterator[Step]:
    if change.host.kind == "xen":
        return xen.steps(change, scheduler)
    if change.host.kind == "kvm":
        return libvirt.steps(change, cgroup)
    return lxc.steps(change, cgroup)
