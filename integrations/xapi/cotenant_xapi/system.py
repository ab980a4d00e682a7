"""What `cotenant sync xapi` reads."""

from __future__ import annotations

from advisor.inventories.systems import InventorySystem
from cotenant_xapi.source import Xapi

SYSTEM = InventorySystem(Xapi, takes=("cloud", "ca_file", "fingerprint"))
