"""Writes the analysis of a dataset as one self-contained HTML file, without scripts; all text is escaped."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lab.errors import LabError
from lab.show import charts, page_model
from lab.show.analysis import DatasetAnalysis
from lab.show.formatting import KINDS, ROLES, factor, mode_outcomes, number, percent, size
from lab.show.group_prediction import GroupPredictions
from lab.statistics import Description
from profiler import look
from profiler.files import write_whole

MOST_COMPOSED = 300  # groups in the table of predictions; the dataset has all


def _range(description: Description, words: Callable[[float], str] = "{:.2f}".format) -> str:
    """The 95 % interval; empty when there is none."""
    lower, upper = description.lower, description.upper
    return "" if lower is None or upper is None else f"{words(lower)}–{words(upper)}"


_TEMPLATES = look.environment(Path(__file__).parent / "templates")
_FILTERS: dict[str, Callable[..., Any]] = {
    "percent": percent,
    "range": _range,
    "plain_range": lambda description: _range(description, number),
    "factor": factor,
    "plain": number,
    "size": size,
    "strength": page_model.strength,
    "begin": lambda text: text[:1].upper() + text[1:],
}
_TEMPLATES.filters |= _FILTERS


def write_page(shown: DatasetAnalysis, path: Path) -> None:
    """Write the page, whole or not at all; a file that is there is replaced when the new one is complete.

    LabError when `path` cannot be written; PictureError without matplotlib, before anything is written.
    """
    if path.exists() and not path.is_file():
        raise LabError(f"the report cannot be written to {path}: it is not a regular file; name another")
    if not path.absolute().parent.is_dir():  # before all is drawn
        raise LabError(f"the report cannot be written to {path}: there is no folder {path.parent}")
    content = page(shown).encode()
    try:
        write_whole(path.resolve(), content)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise LabError(f"no space left for the report {path}: free some and try again") from None
        raise LabError(f"the report cannot be written to {path}: {error.strerror or error}") from None


def page(shown: DatasetAnalysis) -> str:
    """The page's text; the same dataset gives the same text."""
    curves = page_model.curves(shown.sweeps)
    return _TEMPLATES.get_template("lab.html.j2").render(
        shown=shown,
        name=shown.about.get("name") or Path(shown.directory).name,
        headline=page_model.headline(shown),
        sentences=page_model.summary(shown),
        matrices={name: form for name, form in shown.forms.items() if form.matrix},
        scale=page_model.scale(),
        rankings=page_model.rankings(shown),
        curves=curves,
        curve_pictures=_curve_pictures(curves),
        modes_title=page_model.modes_title,
        composed=_worst_predicted(shown.composition),
        courses=[(name, courses, charts.course_picture(name, courses)) for name, courses in shown.courses.items()],
        marked=shown.marked[: page_model.MOST_MARKED],
        circumstances=page_model.circumstances(shown.about),
        outcomes=mode_outcomes(shown.modes),
        kinds=KINDS,
        roles=ROLES,
    )


def _curve_pictures(curves: list[page_model.SweepCurves]) -> Mapping[str, list[tuple[str, Markup, int]]]:
    """By factor: title, picture, and how many lines it leaves out."""
    pictures: dict[str, list[tuple[str, Markup, int]]] = {}
    for curve in curves:
        drawn = pictures.setdefault(curve.factor, [])
        if len(drawn) < page_model.MOST_PICTURES:
            lines = charts.lines_of(curve.sweeps)
            svg = charts.sweep_picture(f"{curve.factor} {lines[0].role} {curve.title}", lines)
            drawn.append((curve.title, svg, len(curve.sweeps) - len(lines)))
    return pictures


def _worst_predicted(composition: GroupPredictions) -> list[Any]:
    """Groups by the error of the product rule, the largest first."""
    return sorted(composition.groups, key=lambda group: -abs(group.error("product")))[:MOST_COMPOSED]
