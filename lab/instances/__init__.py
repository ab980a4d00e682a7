"""Instances of a lab run, one file per way to host them."""

from lab.campaign import Backing
from lab.control_groups import GroupMaker
from lab.instances.base import Instances, Program, Running, Setup
from lab.instances.containers import Containers
from lab.instances.native import Native
from lab.instances.qemu import Qemu
from lab.instances.xen import Xen

__all__ = ["Backing", "Instances", "Program", "Running", "Setup", "host_instances"]


def host_instances(backing: Backing, setup: Setup, maker: GroupMaker) -> Instances:
    """Instances of this kind for one run, not yet started."""
    if backing == "container":
        return Containers(setup, maker)
    if backing == "native":
        return Native(setup, maker)
    if backing == "qemu":
        return Qemu(setup, maker)
    return Xen(setup, maker)
