"""A CloudStack cloud: read through signed API calls, with commands, and with migrations for its own DRS."""

from advisor.inventories.systems import InventorySystem
from cotenant_cloudstack.source import CloudStack

__all__ = ["SYSTEM", "CloudStack"]

SYSTEM = InventorySystem(CloudStack, takes=("cloud",))
