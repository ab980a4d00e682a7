"""Where each of the eight metrics comes from on each hypervisor, with which formula, and how far from the paper."""

from __future__ import annotations

from profiler.definitions.table import Definition

__all__ = ["Definition"]
