"""A Kubernetes cluster, read and watched through its API: nodes, pods, and KubeVirt's guests."""

from advisor.inventories.kubernetes.source import Kubernetes
from advisor.inventories.systems import InventorySystem

__all__ = ["SYSTEM", "Kubernetes"]

SYSTEM = InventorySystem(Kubernetes, takes=("cloud",), watched=True)
