"""Text shared by several reports: settings, refusals, and the origin of a model; plain text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from advisor.domain import IsolationSettings, Rejection
from advisor.reports.number_format import listed
from profiler.observed import NetworkSettings

REFUSED = {
    "capacity.vcpus": "too few CPUs free",
    "capacity.dedicated": "too few dedicated CPUs free",
    "capacity.memory": "too little memory free",
    "capacity.disk": "too little disk free",
    "capacity.pinning": "lacks a CPU that it is pinned to",
    "host.disabled": "disabled",
    "host.no_data": "no fresh data",
    "limit.newcomer": "it would fall below its own limit there",
    "limit.neighbour": "a neighbour would fall below its limit",
}
_ORIGINS = {
    "prior": "the analytic model that ships with Cotenant; nothing was learned from this cloud's measurements",
    "measured": "trained on measurements",
    "paper": "trained on figures printed in papers, measured on other machines than these",
    "simulated": "trained on simulated figures",
}


def origin(name: str) -> str:
    """The source of a model's knowledge."""
    return _ORIGINS.get(name, f"trained on data of several origins: {name.replace('+', ', ')}")


def settings(wanted: IsolationSettings | None) -> list[str]:
    """The settings to apply, one phrase each."""
    if wanted is None:
        return []
    phrases = [
        f"vCPUs on pCPUs {wanted.pinning}" if wanted.pinning else "",
        f"cap {wanted.cap_percent:g} % of a CPU" if wanted.cap_percent is not None else "",
        f"weight {wanted.weight}" if wanted.weight is not None else "",
        _network(wanted.network),
        f"disk {wanted.disk_limit_mb_s:g} MB/s" if wanted.disk_limit_mb_s is not None else "",
    ]
    return [phrase for phrase in phrases if phrase]


def _network(network: NetworkSettings | None) -> str:
    if network is None or network.mode == "none":
        return ""
    most = f" up to {network.ceil_mbit:g}" if network.mode == "shared" and network.ceil_mbit else ""
    return f"network {network.mode}, {network.rate_mbit:g}{most} Mbit/s"


def refusals(rejected: Sequence[Rejection]) -> list[str]:
    """The reasons and their hosts, with one host's sentence; the most frequent reason first."""
    by_code: dict[str, list[Rejection]] = defaultdict(list)
    for rejection in rejected:
        by_code[rejection.code].append(rejection)
    ordered = sorted(by_code.items(), key=lambda item: (-len(item[1]), item[0]))
    hosts = {code: listed([rejection.host for rejection in group], "hosts") for code, group in ordered}
    return [f"{_begin(REFUSED.get(code, code))}: {hosts[code]}. {group[0].reason}" for code, group in ordered] or [
        "There is no host in this cloud."
    ]


def _begin(text: str) -> str:
    return text[:1].upper() + text[1:]
