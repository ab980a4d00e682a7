"""A cloud at one moment as arrays, one scene per host, and how it follows what changes."""

from advisor.snapshot.cluster import ClusterSnapshot

__all__ = ["ClusterSnapshot"]
