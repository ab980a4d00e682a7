"""Moves of KubeVirt's guests → `virtctl`; settings of pods and guests, said: they stand in the template that made them.

`virtctl migrate` by KubeVirt's pkg/virtctl/vm/migrate.go; a selector can only add to what the guest's own demands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.domain import Command
from advisor.errors import InvalidInput
from advisor.render.change import RenderOptions, SettingsChange, Step, only_said, policed
from advisor.render.names import GUEST
from profiler.observed import Host, Instance

TOOL = "virtctl"
PINS_TRAVEL = False
HOSTNAME = "kubernetes.io/hostname"
MOVING = "moving"  # the label of what holds a guest's place on the node that it moves to
_NAME = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)\Z")
_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")  # the value of a label


def steps(change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
    """One sentence for each setting, with the field that says it."""
    del options
    name, desired = change.instance.labels.get("name", change.instance.id), change.desired
    if change.differs("pinning") and desired.pinning is not None and change.pinned(desired.pinning):
        how = "dedicatedCpuPlacement of a guest, or whole CPUs in a pod of the class Guaranteed"
        yield only_said(TOOL, f"{name} gets CPUs of its own by {how}; the kubelet's static CPU manager chooses which")
    if change.differs("weight"):
        yield only_said(TOOL, f"the weight of {name} follows from its CPU requests: change them in its template")
    if change.differs("cap_percent") and desired.cap_percent is not None:
        yield only_said(TOOL, f"the cap of {name} is limits.cpu: {10 * desired.cap_percent:.0f}m in its template")
    if change.differs("disk_limit_mb_s"):
        yield only_said(TOOL, f"neither KubeVirt nor a kubelet limits the disk of {name}")


def network(change: SettingsChange) -> Iterator[Step]:
    """The annotation that the bandwidth plug-in of a pod network reads."""
    limit = policed(change.desired.network)
    if limit is not None and change.differs("network"):
        name = change.instance.labels.get("name", change.instance.id)
        text = f"{name} sends no more with kubernetes.io/egress-bandwidth: {limit.kbit_s}k in its template"
        yield only_said(TOOL, f"{text}, where the pod network has the bandwidth plug-in")


def migrate(instance: Instance, source: Host, target: Host) -> Command:
    """The live migration of a guest to a named node; a pod does not move."""
    name = instance.labels.get(GUEST)
    if MOVING in instance.labels:
        return Command(TOOL, (), (), f"{name or instance.id} moves already: wait until it is there")
    if name is None:
        text = "a pod does not move: evict it, and what owns it makes another one, which Cotenant is asked about"
        return Command(TOOL, (), (), f"{instance.labels.get('name', instance.id)}: {text}")
    guest = _NAME.match(name)
    if guest is None:
        message = f"instance {instance.id}: label {GUEST} {name[:60]!r} is not NAMESPACE/NAME of a guest"
        raise InvalidInput(message, field=f"instance.labels.{GUEST}")
    start = (TOOL, "migrate", guest[2], "--namespace", guest[1])
    argv, undo = ((*start, f"--addedNodeSelector={HOSTNAME}={hostname(host)}") for host in (target, source))
    return Command(TOOL, argv, undo, "needs KubeVirt 1.6 or later, and a guest whose condition LiveMigratable is True")


def set_vcpus(host: Host, former: Instance, then: Instance) -> Command:
    """Said: the size stands in the template."""
    del host, former
    name, cpus = then.labels.get("name", then.id), f"{then.vcpus} CPU{'s' if then.vcpus > 1 else ''}"
    return Command(TOOL, (), (), f"give {name} {cpus} in its template (domain.cpu of a guest, requests of a pod)")


def hostname(node: Host) -> str:
    """The value of the node's label kubernetes.io/hostname, which need not be its name."""
    name = node.labels.get(f"node.{HOSTNAME}", node.id)
    if not _NODE.match(name):
        raise InvalidInput(f"host {node.id}: {name[:60]!r} is not the value of a label", field="host.id")
    return name
