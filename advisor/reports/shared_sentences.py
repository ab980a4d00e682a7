"""Text shared by several documents: refusals, and the origin of a model; plain text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from advisor.domain import NO_SUPPORT, Effect, Rejection
from advisor.reports.number_format import listed

REFUSED = {
    "capacity.vcpus": "too few CPUs free",
    "capacity.dedicated": "too few dedicated CPUs free",
    "capacity.memory": "too little memory free",
    "capacity.disk": "too little disk free",
    "capacity.pinning": "lacks a CPU that it is pinned to",
    "host.disabled": "disabled",
    "host.no_data": "no fresh data",
    "limit.new_vm": "it would fall below its own limit there",
    "limit.neighbour": "a neighbour would fall below its limit",
}
_ORIGINS = {
    "analytic": "the analytic model that ships with Cotenant; nothing was learned from this cloud's measurements",
    "measured": "trained on measurements",
    "paper": "trained on figures printed in papers, measured on other machines than these",
    "simulated": "trained on simulated figures",
}


def origin(name: str) -> str:
    """The source of a model's knowledge."""
    return _ORIGINS.get(name, f"trained on data of several origins: {name.replace('+', ', ')}")


def answered_by(version: str, origin: str, *, degraded: bool = False, effects: Iterable[Effect] = ()) -> str:
    """Which model answered, and how many of these `effects` rest on what was measured."""
    line = f"Answered by model {version}, trained on {origin} data."
    known = [effect.basis for effect in effects if effect.basis is not None]
    if known:
        rests = [one for one in known if one.support >= NO_SUPPORT]
        line += f" {len(rests):,} of {len(known):,} predictions rest on something learned"
        median = sorted(one.support for one in known)[len(known) // 2]
        line += f", median support {100 * median:.0f} %."
    if origin == "analytic":
        line = "Answered by the analytic model; no learned model was used."
    return f"{line} Degraded: the learned model failed." if degraded else line


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
