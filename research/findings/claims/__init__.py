"""How each printed figure is measured in the lab, one file per paper; importing them registers them."""

from research.findings.claims import cloudstack, ec2, latency, neighbor, neighbor_platforms

__all__ = ["cloudstack", "ec2", "latency", "neighbor", "neighbor_platforms"]
