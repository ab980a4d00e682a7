"""A CloudStack cloud as hosts and instances, read through signed API calls."""

from advisor.inventories.cloudstack.source import CloudStack
from advisor.inventories.systems import InventorySystem

__all__ = ["SYSTEM", "CloudStack"]

SYSTEM = InventorySystem(CloudStack, takes=("cloud",))
