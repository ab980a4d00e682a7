"""Sentences that several reports share, and the card of the model that predicted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from advisor.domain import NO_SUPPORT, Effect, Rejection
from advisor.reports.parts import Column, Section, Table, listed

REFUSED = {
    "capacity.vcpus": "too few CPUs free",
    "capacity.dedicated": "too few dedicated CPUs free",
    "capacity.memory": "too little memory free",
    "capacity.disk": "too little disk free",
    "capacity.pinning": "lacks a CPU that it is pinned to",
    "capacity.counted": "too little free of what it needs a number of",
    "capacity.driver_domain": "its driver domain has too little left",
    "constraint.affinity": "the others of its affinity group are elsewhere",
    "constraint.anti_affinity": "enough of its anti-affinity group are there",
    "constraint.exclude": "ruled out by the question",
    "constraint.exclusive": "an instance is there for itself, or it needs the host for itself",
    "constraint.kind": "another kind of hypervisor",
    "constraint.label": "lacks a label that it requires",
    "constraint.never_move": "it never moves",
    "constraint.soft": "breaks more soft rules than another host",
    "host.disabled": "disabled",
    "host.memory_short": "short of memory",
    "host.no_data": "no fresh data",
    "host.unknown": "not in the inventory",
    "limit.new_vm": "it would fall below its own limit there",
    "limit.new_vm_latency": "its latency would be above its limit there",
    "limit.new_vm_time_short": "it would be contended longer there than it accepts",
    "limit.neighbour": "a neighbour would fall below its limit",
    "limit.neighbour_latency": "the latency of a neighbour would be above its limit",
    "limit.neighbour_time_short": "a neighbour would be contended longer than it accepts",
    "limit.settings": "a limit breaks as every instance is set",
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
        line += f" {len(rests):,} of {len(known):,} predictions are based on learned data"
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
        "This cloud has no hosts."
    ]


def _begin(text: str) -> str:
    return text[:1].upper() + text[1:]


# The model card as a section: training data and evaluation.

_JUDGED = ("rows", "mae", "mae_prior", "p90_abs_error", "coverage")


def card_section(version: str, kind: str, card: Mapping[str, Any]) -> Section:
    """Facts and tables of a card, whose parts of unknown shape are left out; nothing of the prior, which has none."""
    if not card:
        return Section("model", "The model")
    facts = {"Version": version, "Origin": f"{origin(kind)[:1].upper()}{origin(kind)[1:]}."}
    for key, term in (("created_at", "Trained"), ("interval", "Intervals")):
        if isinstance(card.get(key), str):
            facts[term] = card[key]
    libraries = card.get("libraries")
    if isinstance(libraries, Mapping):
        facts["Libraries"] = ", ".join(f"{name} {number}" for name, number in libraries.items())
    listed = card.get("datasets")
    datasets = [
        dataset for dataset in (listed if isinstance(listed, list | tuple) else ()) if isinstance(dataset, Mapping)
    ]
    trained = Table(
        "trained_on", "Trained on",
        (Column("name", "Dataset", "name"), Column("origin", "Origin"), Column("colocations", "Runs", "count"),
         Column("machine", "Machine", "prose")),
        [
            (str(dataset.get("name", "")), _text(dataset.get("origin")), _number(dataset.get("colocations")),
             _text(dataset.get("machine")))
            for dataset in datasets
        ],
    )  # fmt: skip
    figures = card.get("figures")
    rows = [
        (f"{target}, {protocol.replace('_', ' ')}", *(_number(dataset.get(key)) for key in _JUDGED))
        for target, protocols in (figures.items() if isinstance(figures, Mapping) else ())
        if isinstance(protocols, Mapping)
        for protocol, dataset in protocols.items()
        if isinstance(dataset, Mapping)
    ]  # fmt: skip
    judged = Table(
        "judged", "Judged on what was left out of the training: errors of the ratio in percentage points",
        (Column("what", "", "name"), Column("rows", "Rows", "count"), Column("mae", "Mean error", "figure"),
         Column("mae_prior", "The analytic model's", "figure"), Column("p90_abs_error", "Nine in ten below", "figure"),
         Column("coverage", "Intervals held", "share")),
        rows,
    )  # fmt: skip
    return Section("model", "The model", facts=facts, tables=[trained, judged])


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
