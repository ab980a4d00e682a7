"""The isolation ladder: settings to try, from cheap to dear, on a host where a placement would break a limit."""

from advisor.isolation.climbing import climb
from advisor.isolation.network import uplink_class

__all__ = ["climb", "uplink_class"]
