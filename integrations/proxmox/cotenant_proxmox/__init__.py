"""A Proxmox VE cluster as hosts and instances, read through its REST API."""

from advisor.inventories.systems import InventorySystem
from cotenant_proxmox.history import ProxmoxHistory
from cotenant_proxmox.source import Proxmox

__all__ = ["SYSTEM", "Proxmox"]

SYSTEM = InventorySystem(Proxmox, takes=("cloud", "ca_file", "fingerprint"), partly=True, history=ProxmoxHistory)
