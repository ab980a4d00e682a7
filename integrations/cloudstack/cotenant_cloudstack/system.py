"""What `cotenant sync cloudstack` reads."""

from __future__ import annotations

from advisor.inventories.systems import InventorySystem
from cotenant_cloudstack.source import CloudStack

SYSTEM = InventorySystem(CloudStack, takes=("cloud",))
