"""Draws a measured dataset on the terminal: matrix per pinning form, combined scores, noise."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from profiler.lab.show import Form, Shown
from profiler.lab.statistics import Description


def draw(shown: Shown, console: Console) -> None:
    """Print everything that `show` found."""
    disturbed = "" if shown.disturbed is None else f", {shown.disturbed} runs disturbed from outside"
    console.print(f"{shown.directory}: {shown.repeats} rounds{disturbed}", markup=False)
    for name, form in shown.forms.items():
        if form.matrix:
            console.print(_matrix(name, form))
        console.print(_scores(name, form))
    console.print(_noise(shown))


def _matrix(name: str, form: Form) -> Table:
    table = Table(title=f"{name}: T/B of the row beside the column (1.00 = as alone), median and 95 % interval")
    names = sorted(form.matrix)
    table.add_column("")
    for neighbour in names:
        table.add_column(f"+ {neighbour}", justify="right")
    for victim in names:
        table.add_row(victim, *(_cell(form.matrix[victim].get(neighbour)) for neighbour in names))
    return table


def _scores(name: str, form: Form) -> Table:
    table = Table(title=f"{name}: combined score, best first")
    table.add_column("together")
    for column in ("T/B of each", "sum of T/B"):
        table.add_column(column, justify="right")
    for score in form.scores:
        each = " + ".join(f"{ratio:.2f}" for ratio in score.ratios)
        table.add_row(" + ".join(score.members), each, _cell(score.score))
    return table


def _noise(shown: Shown) -> Table:
    table = Table(title="noise: coefficient of variation of solo throughput over the rounds")
    for column in ("workload", "pinning"):
        table.add_column(column)
    for column in ("median", "variation", "rounds"):
        table.add_column(column, justify="right")
    for workload, places in shown.noise.items():
        for where, solo in places.items():
            variation = "" if solo.cv is None else f"{100 * solo.cv:.1f} %"
            table.add_row(workload, where, f"{solo.median:,.5g}", variation, str(solo.count))
    return table


def _cell(description: Description | None) -> str:
    if description is None:
        return ""
    if description.lower is None or description.upper is None:
        return f"{description.median:.2f}"
    return f"{description.median:.2f} ({description.lower:.2f}-{description.upper:.2f})"
