"""A pool of XCP-ng or XenServer: read through XAPI, and advised as its Workload Balancing server."""

from advisor.inventories.systems import InventorySystem
from cotenant_xapi.source import Xapi

__all__ = ["SYSTEM", "Xapi"]

SYSTEM = InventorySystem(Xapi, takes=("cloud", "ca_file", "fingerprint"))
