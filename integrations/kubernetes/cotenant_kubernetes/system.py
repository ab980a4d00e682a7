"""A Kubernetes cluster, read and watched through its API: nodes, pods, and KubeVirt's guests."""

from advisor.inventories.systems import InventorySystem
from cotenant_kubernetes.source import Kubernetes

__all__ = ["SYSTEM", "Kubernetes"]

SYSTEM = InventorySystem(Kubernetes, takes=("cloud",), watched=True)
