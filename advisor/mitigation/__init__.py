"""The isolation ladder: settings to try, from cheap to dear, on a host where a placement would break a limit."""

from advisor.mitigation.escalation import climb

__all__ = ["climb"]
