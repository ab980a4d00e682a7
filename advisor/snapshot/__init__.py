"""A cloud at one moment as arrays, one scene per host, and its incremental updates."""

from advisor.snapshot.cluster import ClusterSnapshot

__all__ = ["ClusterSnapshot"]
