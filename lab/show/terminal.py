"""Prints the analysis of a dataset on the terminal: matrix per pinning form, scores, curves and noise."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.show.analysis import DatasetAnalysis
from lab.show.formatting import KINDS, ROLES, bracket, factor, mode_outcomes, narrow, number, percent, size
from lab.show.group_prediction import GroupPredictions
from lab.show.noise import MarkedRuns, half_width
from lab.show.pairs import FormResults, GroupScore
from lab.show.sweeps import FactorSweep, NetworkModes
from lab.statistics import Description

_WIDE = 7  # from so many neighbours on, cells hold the half-width of the interval instead of both ends
_HEADER = 8  # letters in a line of a header above such cells
_ENDS = 10  # how many of a long list's best, and of its worst
_FIRST = 12  # how many of a long list that has no worst end


def draw(shown: DatasetAnalysis, console: Console, *, everything: bool = False) -> None:
    """Print an analysis; long lists are cut to their ends unless `everything` is asked for."""
    console.print(_headline(shown))
    for name, form in shown.forms.items():
        if form.matrix:
            console.print(_matrix(name, form))
        for members, scores in form.by_size().items():
            console.print(
                _scores(f"{name}: combined score of {size(members)}, best first", scores, everything=everything)
            )
    if shown.composition.groups:
        console.print(_composition(shown.composition))
    if shown.sweeps:
        console.print(_sweeps(shown.sweeps, everything=everything))
    if shown.modes:
        console.print(_modes(shown.modes, everything=everything))
    console.print(_noise(shown))
    if shown.narrow and shown.narrow[0].results:
        console.print(Text(narrow(shown.narrow)))
    for line in (*_marks(shown.marks), *_artefacts(shown.artefacts)):
        console.print(Text(line))


def _headline(shown: DatasetAnalysis) -> Text:
    disturbed = "" if shown.disturbed is None else f", {shown.disturbed} runs disturbed from outside"
    origin = ", ".join(shown.about[name] for name in ("machine", "kernel", "date") if shown.about.get(name))
    return Text(f"{shown.directory}: {shown.repeats} rounds{disturbed}" + (f" ({origin})" if origin else ""))


def _table(title: str, columns: Sequence[str], numbers: Sequence[str]) -> Table:
    """A table whose title and cells are taken literally; `columns` are text, `numbers` stand at the right."""
    table = Table(title=Text(title, style="italic"), title_justify="left")
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    for name in numbers:
        table.add_column(Text(name), justify="right", overflow="fold")
    return table


def _add(table: Table, cells: Iterable[str]) -> None:
    table.add_row(*(Text(cell) for cell in cells))


def _matrix(name: str, form: FormResults) -> Table:
    names = form.names
    wide = len(names) >= _WIDE
    interval = "±half of the 95 % interval in hundredths" if wide else "95 % interval"
    heads = ["\n".join(textwrap.wrap(name, _HEADER)) if wide else f"+ {name}" for name in names]
    title = f"{name}: T/B of the row beside the column (1.00 = as alone), median and {interval}"
    table = _table(title, [""], heads)
    if wide:
        table.padding = (0, 0)
        table.pad_edge = False
    for victim in names:
        _add(table, [victim, *((_short if wide else _cell)(form.cell(victim, neighbour)) for neighbour in names)])
    return table


def _scores(title: str, scores: Sequence[GroupScore], *, everything: bool) -> Table:
    table = _table(title, ["together"], ["T/B of each", "sum of T/B"])
    cut = not everything and len(scores) > 2 * _ENDS + 1
    for score in scores[:_ENDS] if cut else scores:
        _add(table, _score(score))
    if cut:
        _add(table, [f"... {len(scores) - 2 * _ENDS} between them (--all shows them)", "", ""])
        for score in scores[-_ENDS:]:
            _add(table, _score(score))
    return table


def _score(score: GroupScore) -> list[str]:
    return [" + ".join(score.members), " + ".join(f"{ratio:.2f}" for ratio in score.ratios), _cell(score.score)]


def _composition(composition: GroupPredictions) -> Table:
    table = _table(
        "three and more: combined score predicted from the pairs, against the measured one",
        ["rule"],
        ["groups", "mean error", "mean absolute error"],
    )
    for rule in composition.rules:
        _add(table, [rule.name, str(rule.groups), f"{rule.bias:+.3f}", f"{rule.error:.3f}"])
    return table


def _sweeps(sweeps: Sequence[FactorSweep], *, everything: bool) -> Table:
    table = _table(
        "one thing varied, all else the same: T/B at each value", ["form", "T/B of", "beside", "varied"], [""]
    )
    for sweep in sweeps if everything else sweeps[:_FIRST]:
        points = "  ".join(f"{point.words}: {point.ratio.median:.2f}" for point in sweep.points)
        other = f"{sweep.neighbour} ({sweep.others})" if sweep.others else sweep.neighbour
        _add(table, [sweep.form, sweep.victim, other, f"{factor(sweep.factor)}, {ROLES[sweep.role]}", points])
    _cut(table, len(sweeps), everything=everything)
    return table


def _modes(modes: Sequence[NetworkModes], *, everything: bool) -> Table:
    known = list(mode_outcomes(modes))
    table = _table("tc modes: median outcome beside others", ["form", "workload", "beside", "mode"], known)
    for of_workload in modes if everything else modes[:_FIRST]:
        for mode in of_workload.modes:
            medians = {name: f"{number(value.median)} {mode.units[name]}" for name, value in mode.outcomes.items()}
            head = [of_workload.form, of_workload.victim, " + ".join(of_workload.neighbours), mode.mode]
            _add(table, [*head, *(medians.get(name, "") for name in known)])
    _cut(table, len(modes), everything=everything)
    return table


def _cut(table: Table, count: int, *, everything: bool) -> None:
    if not everything and count > _FIRST:
        table.caption = f"{count - _FIRST} more, which --all shows"


def _noise(shown: DatasetAnalysis) -> Table:
    title = "noise: coefficient of variation of solo throughput over the rounds"
    table = _table(title, ["workload", "pinning"], ["median", "variation", "rounds"])
    for workload, places in shown.noise.items():
        for where, solo in places.items():
            _add(table, [workload, where, number(solo.median), percent(solo.cv, 1), str(solo.count)])
    return table


def _marks(every: Sequence[MarkedRuns]) -> list[str]:
    lines: list[str] = []
    for marks in every:
        kinds = ", ".join(
            f"{marked} of {runs} {KINDS.get(kind, kind)}" for kind, (marked, runs) in marks.by_kind.items()
        )
        line = f"{marks.mark}: {kinds}"
        if marks.typical is not None and marks.largest is not None:
            line += (
                f"; without them {len(marks.changes)} medians of T/B change by {marks.typical:.3f} (median),"
                f" at most {marks.largest:.3f}"
            )
        lines.append(line)
    return lines


def _artefacts(found: Mapping[str, int]) -> list[str]:
    if not found:
        return []
    above, unsure, open_loops = (found.get(name, 0) for name in ("above_alone", "unsure", "open_loop"))
    return [
        f"not learned: {above + unsure} of {sum(found.values())} ratios, {above} of them above 1 + 3 standard errors"
        f" and {unsure} with an error that says nothing; {open_loops} of open loops are learned relative to their usual"
        " value alone, and as at most that"
    ]


def _cell(description: Description | None) -> str:
    return "" if description is None else f"{description.median:.2f}{bracket(description)}"


def _short(description: Description | None) -> str:
    if description is None:
        return ""
    half = half_width(description)
    return f"{description.median:.2f}" + ("" if half is None else f"±{100 * half * description.median:.0f}")
