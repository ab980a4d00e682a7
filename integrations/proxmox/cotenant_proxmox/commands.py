"""Settings and moves → `pvesh` calls, which any node of a Proxmox VE cluster answers for all of them.

Paths and options by pvesh(1), qm(1), qm.conf(5), pct(1) and pct.conf(5), versions 8 and 9; checked against those texts
only, not run against a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.domain import Command
from advisor.errors import InvalidInput
from advisor.render.change import (
    Phase,
    RenderOptions,
    SettingsChange,
    Step,
    by_version,
    bytes_per_second,
    more,
    only_said,
    policed,
    replaced,
    weight_note,
)
from advisor.render.names import GUEST, labelled
from profiler.observed import Host, Instance, Pinning

TOOL = "pvesh"
PINS_TRAVEL = True  # `affinity` stands in the guest's configuration, which goes along
_PATH = re.compile(r"(?:qemu|lxc)/[1-9]\d{0,8}\Z")
_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\Z")
_FROM_ITS_START = "holds from its next start"


def steps(change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
    """What the guest's configuration can say, but the network; see `Phase` for the order."""
    guest = _guest(change.instance)
    if guest is None:
        if any(change.differs(setting) for setting in ("pinning", "weight", "cap_percent", "disk_limit_mb_s")):
            lacks = f"label {GUEST} on instance {change.instance.id}"
            yield only_said(TOOL, f"CPU and disk are limited by its configuration: needs {lacks}", needs=lacks)
        return
    sets = _sets(change.host, guest)
    yield from _pin(change, guest, sets)
    weights = change.weights(by_version(options))
    if weights:
        yield from replaced(
            TOOL,
            *weights,
            lambda units: (*sets, "--cpuunits", str(units)),
            loosens=weights[1] > weights[0],
            note=weight_note(change.desired.weight, options),
        )
    now, then = change.current.cap_percent, change.desired.cap_percent
    if then is not None:
        yield from replaced(
            TOOL, now or 0.0, then, lambda cap: (*sets, "--cpulimit", f"{cap / 100:g}"), loosens=more(now, then)
        )
    limit = bytes_per_second(change.desired.disk_limit_mb_s)
    if limit is not None and change.differs("disk_limit_mb_s"):
        text = f"the disks of {change.instance.id} get mbps_rd and mbps_wr that are together {limit / 1e6:g}"
        yield only_said(TOOL, f"{text}; the lines of its disks, in which they stand, are not known here")


def network(change: SettingsChange) -> Iterator[Step]:
    """The rate of its NICs, said: it stands in a line with their addresses, which is not known."""
    limit = policed(change.desired.network)
    if limit is not None and change.differs("network"):
        text = f"the NICs of {change.instance.id} get rates that are together {limit.kbyte_s / 1000:.3g} (MB/s)"
        yield only_said(TOOL, f"{text}; the lines of its NICs, in which they stand, are not known here")


def migrate(instance: Instance, source: Host, target: Host) -> Command:
    """The live migration of a VM; a container is stopped and started on the way."""
    guest = _guest(instance)
    if guest is None:
        return Command(TOOL, (), (), f"to move it: needs label {GUEST} on instance {instance.id} (such as qemu/100)")
    is_vm = guest.startswith("qemu/")
    argv, undo = (
        (TOOL, "create", f"/nodes/{_node(here)}/{guest}/migrate", "--target", _node(there),
         "--online" if is_vm else "--restart", "1")
        for here, there in ((source, target), (target, source))
    )  # fmt: skip
    local = "disks of their own need --with-local-disks 1"
    return Command(TOOL, argv, undo, local if is_vm else "a container is stopped there and started on the other node")


def set_vcpus(host: Host, former: Instance, then: Instance) -> Command:
    """Its cores; a VM gets one socket."""
    guest = _guest(then)
    if guest is None:
        return Command(TOOL, (), (), f"to resize it: needs label {GUEST} on instance {then.id} (such as qemu/100)")
    is_vm = guest.startswith("qemu/")
    start = (*_sets(host, guest), *(("--sockets", "1") if is_vm else ()), "--cores")
    note = f"{_FROM_ITS_START}; its undo leaves it with one socket" if is_vm else ""
    return Command(TOOL, (*start, str(then.vcpus)), (*start, str(former.vcpus)), note)


def _guest(instance: Instance) -> str | None:
    """The label `guest` as paths name a guest (`qemu/100`), or None."""
    return labelled(instance, GUEST, _PATH, "a guest of Proxmox VE (such as qemu/100)")


def _sets(host: Host, guest: str) -> tuple[str, ...]:
    return (TOOL, "set", f"/nodes/{_node(host)}/{guest}/config")


def _node(host: Host) -> str:
    """The node's name: the host's id, without the cluster's name before it where several clusters are read."""
    name = host.id.rpartition(":")[2]
    if not _NODE.match(name):
        raise InvalidInput(f"host {host.id}: {name[:60]!r} is not the name of a node", field="host.id")
    return name


def _pin(change: SettingsChange, guest: str, sets: tuple[str, ...]) -> Iterator[Step]:
    desired = change.desired.pinning
    if desired is None:
        return
    now, then = (_cpus(change, pinning) for pinning in (change.current.pinning, desired))
    if now == then:
        return
    if not guest.startswith("qemu/"):
        yield only_said(TOOL, f"a container has no affinity in its configuration: {change.instance.id} stays unpinned")
        return
    argv, undo = (
        (*sets, "--delete", "affinity")
        if cpus == change.every_cpu
        else (*sets, "--affinity", change.cpu_list(cpus, ""))
        for cpus in (then, now)
    )
    apart = len(set(desired.cpus)) > 1
    note = f"one list for all of its vCPUs; {_FROM_ITS_START}" if apart else _FROM_ITS_START
    yield Step(Phase.PIN, Command(TOOL, argv, undo, note))


def _cpus(change: SettingsChange, pinning: Pinning | None) -> frozenset[int]:
    return (pinning.union if pinning else frozenset()) or change.every_cpu
