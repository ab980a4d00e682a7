"""Instances of a lab run, one module per kind: containers, native processes, QEMU guests and Xen domains."""

from lab.campaign import Backing
from lab.control_groups import GroupMaker
from lab.instances.base import Instances, Program, RunningInstance, RunSetup
from lab.instances.containers import ContainerInstances
from lab.instances.native import NativeInstances
from lab.instances.qemu import QemuInstances
from lab.instances.xen import XenInstances

__all__ = ["Backing", "Instances", "Program", "RunSetup", "RunningInstance", "host_instances"]


def host_instances(backing: Backing, setup: RunSetup, maker: GroupMaker) -> Instances:
    """Instances of this kind for one run, not yet started."""
    if backing == "container":
        return ContainerInstances(setup, maker)
    if backing == "native":
        return NativeInstances(setup, maker)
    if backing == "qemu":
        return QemuInstances(setup, maker)
    return XenInstances(setup, maker)
