"""The newest results of probes on a host or an instance, as rows of a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from advisor.domain import PAIR_VALUES, ModelCard, ProbeReport
from api.html import picture
from profiler.observed import INCIDENTAL

MOST = 100  # results on one page


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One result: the probe with its far end or neighbour, its main value, its age, its circumstances."""

    probe: str
    far_end: str
    main: str
    value: str
    unit: str
    age: str
    time: str
    circumstances: str
    marks: tuple[str, ...]
    counts: str


def probe_rows(reports: Sequence[ProbeReport], now: datetime, model: ModelCard) -> list[ProbeRow]:
    """The results in the order of the probes' names; `model` is the one that answers."""
    needed = {str(name).partition(".")[0] for name in model.card.get("probes", ())}
    ordered = sorted(reports, key=lambda report: (report.result.probe, report.peer))
    return [_row(report, now, needed) for report in ordered]


def _row(report: ProbeReport, now: datetime, needed: Collection[str]) -> ProbeRow:
    result = report.result
    value = result.values[result.main]
    shown = {name: text for name, text in result.circumstances.items() if name not in INCIDENTAL - {"load"}}
    return ProbeRow(
        probe=result.probe,
        far_end=report.peer and f"{'beside' if result.probe in PAIR_VALUES else 'to'} {report.peer}",
        main=result.main.replace("_", " "),
        value=f"{value.value:.4g}",
        unit="" if value.unit == "1" else value.unit,
        age=picture.age_since(report.taken_at, now),
        time=report.taken_at.isoformat(timespec="seconds"),
        circumstances=", ".join(f"{name.replace('_', ' ')} {text}" for name, text in shown.items()),
        marks=result.marks,
        counts=f"No: {report.why_not_counted}"
        if report.why_not_counted
        else "Yes"
        if report.instance or result.probe in needed
        else "No: the model that answers was trained without it",
    )
