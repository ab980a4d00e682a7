"""Hosts under libvirt and their guests, read through the command `virsh`."""

from advisor.inventories.libvirt.source import Libvirt
from advisor.inventories.systems import InventorySystem

__all__ = ["SYSTEM", "Libvirt"]

SYSTEM = InventorySystem(Libvirt, takes=("uris",))
