"""An OpenStack cloud as hosts and instances, read through openstacksdk."""

from advisor.inventories.openstack.source import OpenStack
from advisor.inventories.systems import InventorySystem

__all__ = ["SYSTEM", "OpenStack"]

SYSTEM = InventorySystem(OpenStack, takes=("cloud",), partly=True)
