"""Settings → commands with their undo; only rendering, nothing here runs a command or reads a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from advisor.domain import Command
from advisor.render.change import SettingsChange
from advisor.render.names import check_labels
from advisor.render.whole import Tools, plan, unmet
from profiler.host_kinds import TRAITS
from profiler.observed import Host, Instance, IsolationSettings

__all__ = ["check_labels", "commands", "plan", "refused", "unmet"]


def commands(
    host: Host,
    instance: Instance,
    current: IsolationSettings,
    desired: IsolationSettings,
    *,
    scheduler: str | None = None,
    cgroup: int | None = None,
    uplink: str | None = None,
    neighbours: Sequence[Instance] | None = None,
    target: str | None = None,
) -> tuple[Command, ...]:
    """What to run on `host` so that `instance` goes from `current` to `desired`, in this order; undo goes backwards.

    Only what differs is rendered. None in `desired` leaves a setting as it is; None in `current` is the default: no
    pin, no cap, weight 256, no class. A setting that the host's tools cannot express, or only after something is
    filled in, is a Command without argv whose note says so.

    `scheduler` is Xen's (credit or credit2), `cgroup` the version of control groups on Linux (1 or 2), `uplink` the
    interface out of the host; where they are None, the host's labels of these names count, which agents announce, and
    without one credit2 and version 2 are assumed. `neighbours` are the other instances on the host, None
    = not known; they decide whether the uplink's tree is there already. `target` is native (the hypervisor's own
    tools), or the name of a cloud whose package is installed (else the host's label `render`, else native). Which
    labels of an instance are read stands in docs/settings.md.

    Raises InvalidInput for a name that a tool would read as an option, a path or another domain, and for a pinning that
    does not fit the instance or the host.
    """
    tools = Tools.of(host, target, scheduler, cgroup, uplink)
    if all(getattr(desired, f.name) in (None, getattr(current, f.name)) for f in fields(desired)):
        return ()
    change = SettingsChange(host, instance, current, desired)
    steps = [*tools.cpu_and_disk(change), *tools.network(change, neighbours)]
    # Stable: within a phase as written. Network limits come after CPU and disk, they disturb the most when wrong.
    return tuple(step.command for step in sorted(steps, key=lambda step: step.phase))


def refused(host: Host, why: str) -> Command:
    """What stands in the place of commands that cannot be rendered for a host."""
    return Command(TRAITS[host.kind].tool, (), (), f"there are no commands for {host.id}: {why}")
