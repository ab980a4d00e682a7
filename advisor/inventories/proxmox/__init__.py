"""A Proxmox VE cluster as hosts and instances, read through its REST API."""

from advisor.inventories.proxmox.source import Proxmox

__all__ = ["Proxmox"]
