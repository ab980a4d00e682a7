"""Hosts under libvirt and their guests, read through the command `virsh`."""

from advisor.inventories.libvirt.source import Libvirt

__all__ = ["Libvirt"]
