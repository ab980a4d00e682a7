"""The content of the HTML page: its sections, the strength of matrix cells, and what is left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from lab.show.analysis import DatasetAnalysis
from lab.show.formatting import narrow, percent, size
from lab.show.pairs import GroupScore
from lab.show.sweeps import FactorSweep, NetworkModes
from lab.statistics import Description

STEPS = (("w5", 0.50), ("w4", 0.65), ("w3", 0.80), ("w2", 0.90), ("w1", 0.97), ("n", 1.03), ("b1", 1.10))
"""Class of a matrix cell, and the T/B below which it applies; a cell above all of them is `b2`."""
MOST_PICTURES = 12  # of one kind; the tables have everything
MOST_MARKED = 200  # disturbed and unsteady runs in the table
ENDS = 10  # how many of a ranking's best, and of its worst
HEAD = ("name", "origin", "licence", "machine", "kernel", "date")


@dataclass(frozen=True, slots=True)
class GroupRanking:
    """Groups of one size in one form by combined score; `rest` is between the best and the worst."""

    title: str
    best: tuple[GroupScore, ...]
    rest: tuple[GroupScore, ...]
    worst: tuple[GroupScore, ...]


@dataclass(frozen=True, slots=True)
class SweepCurves:
    """Sweeps that belong into one picture: of one workload, one factor, one role and one form."""

    title: str
    factor: str
    sweeps: tuple[FactorSweep, ...]


def strength(cell: Description | None) -> str:
    """The class of a cell by its T/B; neutral around 1."""
    return "none" if cell is None else next((name for name, below in STEPS if cell.median < below), "b2")


def scale() -> list[tuple[str, str]]:
    """The legend of the heat map: class and range, from the worst."""
    ends = [f"{below:.2f}" for _, below in STEPS]
    ranges = [f"below {ends[0]}", *(f"{low}–{high}" for low, high in pairwise(ends))]
    return [*zip([name for name, _ in STEPS], ranges, strict=True), ("b2", f"{ends[-1]} and more")]


def rankings(shown: DatasetAnalysis) -> list[GroupRanking]:
    """By form and by size of the group."""
    return [
        _ranking(f"{name}: {size(members)}", scores)
        for name, form in shown.forms.items()
        for members, scores in form.by_size().items()
    ]


def _ranking(title: str, scores: Sequence[GroupScore]) -> GroupRanking:
    if len(scores) <= 2 * ENDS + 1:
        return GroupRanking(title, tuple(scores), (), ())
    return GroupRanking(title, tuple(scores[:ENDS]), tuple(scores[ENDS:-ENDS]), tuple(scores[-ENDS:]))


def curves(sweeps: Sequence[FactorSweep]) -> list[SweepCurves]:
    """By factor in the order of the sweeps; within one, the workloads that react most come first."""
    pictures: dict[tuple[str, str, str, str], list[FactorSweep]] = defaultdict(list)
    for sweep in sweeps:
        pictures[sweep.factor, sweep.form, sweep.role, sweep.victim].append(sweep)
    return [SweepCurves(f"{victim} ({form})", name, tuple(of)) for (name, form, _, victim), of in pictures.items()]


def modes_title(modes: NetworkModes) -> str:
    return f"{modes.victim} beside {' + '.join(modes.neighbours)} ({modes.form})"


def headline(shown: DatasetAnalysis) -> str:
    """The largest loss beside a neighbour, in one sentence."""
    cells = [
        (cell.median, victim, neighbour, form)
        for form, results in shown.forms.items()
        for victim, row in results.matrix.items()
        for neighbour, cell in row.items()
    ]
    if not cells:
        return f"{shown.runs} runs in {shown.repeats} rounds"
    worst, victim, neighbour, form = min(cells)
    half = median(cell[0] for cell in cells)
    return (
        f"At worst {victim} keeps {percent(worst)} of its throughput beside {neighbour} ({form});"
        f" half of all pair results keep {percent(half)} or more."
    )


def summary(shown: DatasetAnalysis) -> list[str]:
    """What was measured, how much of it was disturbed, and how narrow intervals are."""
    sentences = [f"{shown.runs} runs in {shown.repeats} round{'' if shown.repeats == 1 else 's'}."]
    if shown.disturbed is not None:
        share = percent(shown.disturbed / shown.runs, 1) if shown.runs else ""
        sentences.append(
            f"{shown.disturbed} runs ({share}) were disturbed from outside; they are marked, not left out."
        )
    if shown.narrow and shown.narrow[0].results:
        sentences.append(f"{narrow(shown.narrow)}.")
    return sentences


def circumstances(about: Mapping[str, str]) -> dict[str, str]:
    """Facts about the dataset, the most important first."""
    first = {name: about[name] for name in HEAD if about.get(name)}
    return first | {name: text for name, text in about.items() if text and name not in first}
