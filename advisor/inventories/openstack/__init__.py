"""An OpenStack cloud as hosts and instances, read through openstacksdk."""

from advisor.inventories.openstack.source import OpenStack

__all__ = ["OpenStack"]
