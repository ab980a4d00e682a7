"""Instances of a lab run, one module per kind: containers, native processes, QEMU guests and Xen domains."""

from typing import Any

from lab.campaign import Backing
from lab.control_groups import GroupMaker
from lab.instances.base import RunSetup
from lab.instances.containers import ContainerInstances
from lab.instances.lifecycle import ManagedInstances, RunningInstance
from lab.instances.native import NativeInstances
from lab.instances.qemu import QemuInstances
from lab.instances.xen import XenInstances
from lab.processes import Program

__all__ = ["Instances", "Program", "RunSetup", "RunningInstance", "host_instances"]
Instances = ManagedInstances[RunningInstance]
"""The instances of one run, of any kind."""
_KINDS: dict[Backing, type[ManagedInstances[Any]]] = {
    "container": ContainerInstances, "native": NativeInstances, "qemu": QemuInstances, "xen": XenInstances,
}  # fmt: skip


def host_instances(backing: Backing, setup: RunSetup, maker: GroupMaker) -> Instances:
    """Instances of this kind for one run, not yet started."""
    return _KINDS[backing](setup, maker)
