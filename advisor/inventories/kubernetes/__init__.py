"""A Kubernetes cluster, read and watched through its API: nodes, pods, and KubeVirt's guests."""

from advisor.inventories.kubernetes.source import Kubernetes

__all__ = ["Kubernetes"]
