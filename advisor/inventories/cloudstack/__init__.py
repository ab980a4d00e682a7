"""A CloudStack cloud as hosts and instances, read through signed API calls."""

from advisor.inventories.cloudstack.source import CloudStack

__all__ = ["CloudStack"]
