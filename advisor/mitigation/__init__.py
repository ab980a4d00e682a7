"""Mitigation: settings to try, cheapest first, on a host where a placement would violate a limit."""

from advisor.mitigation.escalation import escalate

__all__ = ["escalate"]
