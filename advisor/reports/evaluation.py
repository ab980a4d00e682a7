"""An evaluation laid out for reading: each dataset with sentences, pictures and tables of its protocols and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from advisor.reports import evaluation_pictures as pictures
from advisor.reports import evaluation_words as words
from models.evaluation import Evaluation, average_ranks

CURVES = {"measured_pairs": "measured pairs of a new workload", "share_of_pairs": "share of all pairs"}


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture with its caption."""

    caption: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class Section:
    """One protocol of one dataset: its figures as in the contract, what they mean, and pictures."""

    title: str
    meaning: str
    sentences: Sequence[str]
    figures: Mapping[str, Any]
    pictures: Sequence[Picture]


@dataclass(frozen=True, slots=True)
class Part:
    """One dataset."""

    figures: Mapping[str, Any]
    sections: Sequence[Section]
    curves: Sequence[Picture]


def parts(found: Sequence[Evaluation]) -> tuple[Part, ...]:
    """Every dataset in the order it was asked for; the same evaluation gives the same pictures."""
    return tuple(_part(one, f"d{number}") for number, one in enumerate(found))


def ranks(found: Sequence[Evaluation]) -> Mapping[str, float]:
    """Every model's mean rank over all datasets and protocols but random rows."""
    return average_ranks(
        [one for each in found for name, one in each.figures["protocols"].items() if name != "random_row"]
    )


def _part(found: Evaluation, salt: str) -> Part:
    sections = [
        Section(
            title=words.title(protocol),
            meaning=words.MEANING.get(protocol, ""),
            sentences=words.summary(protocol, figures),
            figures=figures,
            pictures=_pictures(found, protocol, f"{salt} {protocol}"),
        )
        for protocol, figures in found.figures["protocols"].items()
    ]
    drawn = [
        Picture(
            f"Mean error by {CURVES.get(name, name)}",
            pictures.curve(one, CURVES.get(name, name), salt=f"{salt} {name}"),
        )
        for name, one in found.figures.get("curves", {}).items()
        if "skipped" not in one
    ]
    return Part(found.figures, sections, drawn)


def _pictures(found: Evaluation, protocol: str, salt: str) -> list[Picture]:
    figures = found.figures["protocols"][protocol]
    if not figures["models"]:
        return []
    drawn = [Picture("Mean error of every model", pictures.errors(figures["models"], salt=f"{salt} errors"))]
    if protocol in found.points:
        drawn.append(
            Picture("Predicted against measured", pictures.scatter(found.points[protocol], salt=f"{salt} points"))
        )
    if "by_predicted" in figures:
        by_predicted, by_platform = figures["by_predicted"], figures["by_platform"]
        drawn.append(Picture("Coverage by predicted value", pictures.coverage(by_predicted, salt=f"{salt} coverage")))
        drawn.append(Picture("Coverage by platform", pictures.platforms(by_platform, salt=f"{salt} platforms")))
        resources = pictures.resources(figures["by_resource"], salt=f"{salt} resources")
        drawn.append(Picture("Error by limiting resource", resources))
    return drawn
