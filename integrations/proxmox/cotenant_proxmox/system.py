"""What `cotenant sync proxmox` reads."""

from __future__ import annotations

from advisor.inventories.systems import InventorySystem
from cotenant_proxmox.history import ProxmoxHistory
from cotenant_proxmox.source import Proxmox

SYSTEM = InventorySystem(Proxmox, takes=("cloud", "ca_file", "fingerprint"), partly=True, history=ProxmoxHistory)
