"""A Kubernetes cluster: nodes, pods and guests of KubeVirt, read, watched and moved, and its scheduler is answered."""
