"""A cloud at one moment as arrays, one scene per host, and its incremental updates."""

from advisor.snapshot.cluster import ClusterSnapshot
from advisor.snapshot.layout import promised_vcpus, share_promised

__all__ = ["ClusterSnapshot", "promised_vcpus", "share_promised"]
