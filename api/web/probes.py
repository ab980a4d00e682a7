"""What probes found last of a host or an instance, as rows of a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from advisor.domain import ModelCard, ProbeReport
from api.web import picture
from profiler.observed import INCIDENTAL

MOST = 100  # results on one page


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One result: the probe with its far end, the value that stands for it, its age, and what it was taken under."""

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
    return [_row(one, now, needed) for one in sorted(reports, key=lambda one: (one.result.probe, one.peer))]


def _row(one: ProbeReport, now: datetime, needed: Collection[str]) -> ProbeRow:
    result = one.result
    value = result.values[result.main]
    said = {name: text for name, text in result.circumstances.items() if name not in INCIDENTAL - {"load"}}
    return ProbeRow(
        probe=result.probe,
        far_end=one.peer,
        main=result.main.replace("_", " "),
        value=f"{value.value:.4g}",
        unit="" if value.unit == "1" else value.unit,
        age=picture.age_in_words(max((now - one.taken_at).total_seconds(), 0.0)),
        time=one.taken_at.isoformat(timespec="seconds"),
        circumstances=", ".join(f"{name.replace('_', ' ')} {text}" for name, text in said.items()),
        marks=result.marks,
        counts=f"No: {one.why_not_counted}"
        if one.why_not_counted
        else "Yes"
        if result.probe in needed
        else "No: the model that answers was trained without it",
    )
