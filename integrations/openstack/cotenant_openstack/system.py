"""An OpenStack cloud as hosts and instances, read through openstacksdk."""

from advisor.inventories.systems import InventorySystem
from cotenant_openstack.source import OpenStack

__all__ = ["SYSTEM", "OpenStack"]

SYSTEM = InventorySystem(OpenStack, takes=("cloud",), partly=True)
