"""Isolation settings of a Xen domain: affinity, weight and cap from xl, interface rates from xenstore."""

from __future__ import annotations

from collections.abc import Callable

from profiler.backends.linux import or_none
from profiler.observed import NO_CAP_PERCENT, NO_RATE_MBIT, IsolationSettings, NetworkSettings, Pinning, real_limit
from profiler.parse.text import ParseError
from profiler.parse.xen_dom0 import parse_xenstore, vif_rate_mbit
from profiler.parse.xl import ListedDomain, parse_vcpu_list
from profiler.parse.xl_host import XlInfo, parse_sched

Tool = Callable[..., str]

_SHARES = {"credit": "sched-credit", "credit2": "sched-credit2"}


def read_isolation(tool: Tool, host: XlInfo, domain: ListedDomain) -> IsolationSettings:
    """Settings of one domain; `tool` gives what a command prints. What cannot be read is None."""
    share = or_none(_share, tool, host, domain.domid)
    weight, cap = share or (None, None)
    return IsolationSettings(
        pinning=or_none(_pinning, tool, domain.domid),
        cap_percent=cap,
        weight=weight,
        network=or_none(_network, tool, domain.domid),
    )


def _pinning(tool: Tool, domid: int) -> Pinning | None:
    """By hard affinity: soft affinity (`cpus_soft`) only says where it is better to run."""
    where = "xl vcpu-list"
    vcpus = parse_vcpu_list(tool("xl", "vcpu-list"), where)
    listed = {number: vcpu for (domain, number), vcpu in vcpus.items() if domain == domid}
    if not listed or sorted(listed) != list(range(len(listed))):
        raise ParseError(where, where, 1, f"vCPUs of domain {domid} are missing")
    online = [vcpu for _, vcpu in sorted(listed.items()) if vcpu.cpu is not None]
    hard = tuple(vcpu.hard or () for vcpu in online)
    return Pinning(hard) if any(hard) else None


def _share(tool: Tool, host: XlInfo, domid: int) -> tuple[int, float | None] | None:
    """Weight and cap; None with schedulers that have neither, and for domains in a pool of another scheduler."""
    command = _SHARES.get(host.scheduler)
    if command is None:
        return None
    share = parse_sched(tool("xl", command), f"xl {command}").get(domid)
    return (
        None
        if share is None
        else (share.weight, None if not share.cap_percent else real_limit(float(share.cap_percent), NO_CAP_PERCENT))
    )


def _network(tool: Tool, domid: int) -> NetworkSettings | None:
    """The rate to which netback limits what a guest sends; what it receives is not limited."""
    nodes = parse_xenstore(tool("xenstore-ls", "-f", "/local/domain/0/backend/vif"), "xenstore-ls")
    rate = vif_rate_mbit(nodes, domid)
    return NetworkSettings("dedicated", rate) if real_limit(rate, NO_RATE_MBIT) else None
