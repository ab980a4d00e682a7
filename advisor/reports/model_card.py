"""The model card as a section: training data and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.reports.parts import Column, Section, Table
from advisor.reports.shared_sentences import origin

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
