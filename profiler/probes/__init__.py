"""Probes: small programs that measure a machine or a pair of machines as in the papers, one module each.

This module only lists them, so that a command line can be built without importing any of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profiler.probes.base import Probe


@dataclass(frozen=True, slots=True)
class ProbeEntry:
    """Facts about a probe before it is imported: what it measures, after which paper, and whether it has a far end."""

    summary: str
    after: str
    needs_peer: bool = False


_EC2NET = "Wang, Ng: The Impact of Virtualization on Network Performance of Amazon EC2 Data Center (2010)"
_LATENCY = (
    "Barker, Shenoy: Empirical Evaluation of Latency-sensitive Application Performance in the Cloud (2010), section 3"
)
_CSTACK = "Vogel et al.: An Intra-Cloud Networking Performance Evaluation on CloudStack Environment (2016), section III"

PROBES: Mapping[str, ProbeEntry] = MappingProxyType(
    {
        "cpu-share": ProbeEntry("share of a CPU that a busy loop gets, and the gaps between", f"{_EC2NET}, section IV"),
        "cpu-work": ProbeEntry("completion time of fixed floating-point work, and its jitter", _LATENCY),
        "rtt": ProbeEntry("round-trip times, by ICMP or UDP", f"{_EC2NET}, section V-B", needs_peer=True),
        "tcp": ProbeEntry("TCP throughput per 256 KB, and quiet spells", f"{_EC2NET}, section V-A", needs_peer=True),
        "udp": ProbeEntry(
            "paced UDP throughput, quiet spells and bursts after", f"{_EC2NET}, section V-A", needs_peer=True
        ),
        "loss": ProbeEntry("packet loss by Badabing's estimator", f"{_EC2NET}, section VI", needs_peer=True),
        "disk": ProbeEntry("small and sustained reads and writes without caches", _LATENCY),
        "hops": ProbeEntry("round-trip times to the first three hops", _LATENCY, needs_peer=True),
        "transfer": ProbeEntry("time of 32 KB there and back over TCP", _LATENCY, needs_peer=True),
        "messages": ProbeEntry("TCP throughput and latency over message size", _CSTACK, needs_peer=True),
        "requests": ProbeEntry("requests and responses per second", _CSTACK, needs_peer=True),
    }
)


def load(name: str) -> Probe:
    """The probe of this name, which its module holds as PROBE; KeyError for a name that is not in PROBES."""
    if name not in PROBES:
        raise KeyError(name)
    probe: Probe = importlib.import_module(f"profiler.probes.{name.replace('-', '_')}").PROBE
    return probe
