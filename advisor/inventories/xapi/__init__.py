"""A pool of XCP-ng or XenServer as hosts and instances, read through XAPI."""

from advisor.inventories.xapi.source import Xapi

__all__ = ["Xapi"]
