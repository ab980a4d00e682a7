"""Instances of a lab run, one file per way to host them."""

from typing import Literal

from profiler.lab.control_groups import GroupMaker
from profiler.lab.instances.base import Instances, Program, Running, Setup
from profiler.lab.instances.containers import Containers

Backing = Literal["container", "qemu", "xen"]

__all__ = ["Backing", "Instances", "Program", "Running", "Setup", "host_instances"]


def host_instances(backing: Backing, setup: Setup, maker: GroupMaker) -> Instances:
    """Instances of this kind for one run, not yet started."""
    if backing == "container":
        return Containers(setup, maker)
    raise NotImplementedError(backing)
