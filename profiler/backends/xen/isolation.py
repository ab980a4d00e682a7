"""Isolation settings of a Xen domain: affinity, weight and cap from xl, interface rates from xenstore."""

from __future__ import annotations

from collections.abc import Callable

from profiler.backends.linux import or_none
from profiler.observed import IsolationSettings, NetworkSettings, Pinning
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
        pinning=or_none(_pinning, tool, host, domain.domid),
        cap_percent=cap,
        weight=weight,
        network=or_none(_network, tool, domain.domid),
    )


def _pinning(tool: Tool, host: XlInfo, domid: int) -> Pinning:
    where = "xl vcpu-list"
    vcpus = parse_vcpu_list(tool("xl", "vcpu-list"), where)
    hard = {number: vcpu.hard for (domain, number), vcpu in vcpus.items() if domain == domid}
    if not hard or sorted(hard) != list(range(len(hard))):
        raise ParseError(where, where, 1, f"vCPUs of domain {domid} are missing")
    all_pcpus = tuple(range(host.pcpus))
    return Pinning(tuple(all_pcpus if cpus is None else cpus for _, cpus in sorted(hard.items())))


def _share(tool: Tool, host: XlInfo, domid: int) -> tuple[int, float | None] | None:
    """Weight and cap; None with schedulers that have neither, and for domains in a pool of another scheduler."""
    command = _SHARES.get(host.scheduler)
    if command is None:
        return None
    share = parse_sched(tool("xl", command), f"xl {command}").get(domid)
    return None if share is None else (share.weight, float(share.cap_percent) if share.cap_percent else None)


def _network(tool: Tool, domid: int) -> NetworkSettings | None:
    """The rate to which netback limits what a guest sends; what it receives is not limited."""
    nodes = parse_xenstore(tool("xenstore-ls", "-f", "/local/domain/0/backend/vif"), "xenstore-ls")
    rate = vif_rate_mbit(nodes, domid)
    return NetworkSettings("dedicated", rate) if rate else None
