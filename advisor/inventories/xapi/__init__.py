"""A pool of XCP-ng or XenServer as hosts and instances, read through XAPI."""

from advisor.inventories.systems import InventorySystem
from advisor.inventories.xapi.source import Xapi

__all__ = ["SYSTEM", "Xapi"]

SYSTEM = InventorySystem(Xapi, takes=("cloud", "ca_file", "fingerprint"))
