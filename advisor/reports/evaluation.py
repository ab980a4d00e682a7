"""The report of evaluations: each dataset with sentences, pictures and tables of its protocols."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from advisor.reports.parts import NBSP, Column, Picture, ReportDocument, Section, Table, count, drawn, edges, share
from advisor.reports.parts import error as points
from models.evaluation.results_table import average_ranks
from profiler.look import AFTER, BAD, BEFORE, inline, short
from profiler.pictures import LINE, diagonal, interval, label, line_at, named_rows, new_figure

# Pictures of an evaluation as inline SVG in the page's colours: errors and coverage.

if TYPE_CHECKING:
    from models.evaluation.run import ScatterPoints

MOST_ROWS = 18  # bars of one picture
MAX_NAME = 22
_CLAIMED_COVERAGE = 0.9  # what the intervals claim to cover
_WIDTH, _HEIGHT = 3.7, 2.7  # inches
_ROW = 0.21
_SMALL: Mapping[str, Any] = {"markersize": 4, "linewidth": 1.4, "markeredgewidth": 0}
_SCALE = 100  # T/B is shown in percentage points


@drawn
def scatter(points: ScatterPoints, *, salt: str) -> Markup:
    """Predicted against measured T/B; rows whose interval missed are marked."""
    figure, (axes,) = new_figure(width=_WIDTH, height=_HEIGHT)
    top = max(1.05, float(np.max([points.measured.max(), points.predicted.max()])))
    diagonal(axes, 0, top)
    for held, colour in ((True, AFTER), (False, BAD)):
        rows = points.inside == held
        axes.plot(points.measured[rows], points.predicted[rows], "o", color=colour, markersize=2, markeredgewidth=0)
    label(axes, x="measured T/B", y="predicted T/B")
    return inline(figure, salt, "Predicted against measured T/B; red points are rows that the interval missed")


@drawn
def coverage(bins: Sequence[Mapping[str, Any]], *, salt: str) -> Markup:
    """Interval coverage by predicted value."""
    figure, (axes,) = new_figure(width=_WIDTH, height=_HEIGHT)
    line_at(axes, _CLAIMED_COVERAGE)
    axes.plot([row["predicted"] for row in bins], [row["coverage"] for row in bins], "o-", color=AFTER, **_SMALL)
    axes.set_ylim(min(0.6, *(row["coverage"] for row in bins)) - 0.05, 1.03)
    label(axes, x="predicted T/B", y="held, share of rows")
    return inline(figure, salt, "Share of rows whose interval held, by predicted T/B; the table has every figure")


@drawn
def platforms(rows: Sequence[Mapping[str, Any]], *, salt: str) -> Markup:
    """Interval coverage of the platforms with most rows."""
    shown = rows[:MOST_ROWS]
    figure, axes = _rows([row["label"].rpartition("/")[2] for row in shown])
    line_at(axes, _CLAIMED_COVERAGE, vertical=True)
    axes.plot([row["coverage"] for row in shown], range(len(shown)), "o", color=AFTER, **_SMALL)
    axes.set_xlim(min(0.6, *(row["coverage"] for row in shown)) - 0.05, 1.03)
    label(axes, x="held, share of rows")
    return inline(figure, salt, "Share of rows whose interval held, by platform; the table has every figure")


@drawn
def errors_by_resource(rows: Sequence[Mapping[str, Any]], *, salt: str) -> Markup:
    """Mean error by limiting resource, the model's beside the analytic model's."""
    figure, axes = _rows([row["label"].replace("_", " ") for row in rows])
    for at, row in enumerate(rows):
        axes.plot([_SCALE * row["mae"], _SCALE * row["prior_mae"]], [at, at], color=LINE, linewidth=1.2)
    axes.plot([_SCALE * row["prior_mae"] for row in rows], range(len(rows)), "o", color=BEFORE, **_SMALL)
    axes.plot([_SCALE * row["mae"] for row in rows], range(len(rows)), "o", color=AFTER, **_SMALL)
    axes.set_xlim(left=0)
    label(axes, x="mean error, points")
    return inline(
        figure, salt, "Mean error by limiting resource, grey: the analytic model's; the table has every figure"
    )


@drawn
def errors(models: Mapping[str, Mapping[str, Any]], *, salt: str) -> Markup:
    """The mean error of every model with its interval, the smallest on top."""
    order = sorted(models, key=lambda name: models[name]["mae"])
    figure, axes = _rows(order)
    for at, name in enumerate(order):
        model, colour = models[name], AFTER if name == "cotenant" else BEFORE
        if edges := model["intervals"]["mae"]:
            interval(axes, [_SCALE * edge for edge in edges], at, colour)
        axes.plot([_SCALE * model["mae"]], [at], "o", color=colour, **_SMALL)
    axes.set_xlim(left=0)
    label(axes, x="mean error, points")
    return inline(figure, salt, "Mean error of every model with its 95 % interval; the table has every figure")


def _rows(names: Sequence[str]) -> tuple[Any, Any]:
    """A figure with one row for each name."""
    figure, (axes,) = new_figure(width=_WIDTH, height=0.55 + _ROW * max(len(names), 2))
    named_rows(axes, [short(name, MAX_NAME) for name in names])
    axes.locator_params(axis="x", nbins=5)
    return figure, axes


# The meaning of an evaluation in sentences; plain text, escaped by the template.

_COTENANT = "cotenant"
_AS_CLAIMED = (0.87, 0.93)  # coverage that counts as the 90 % that the intervals claim
PROTOCOLS = {
    "random_row": "Random rows",
    "unseen_pair": "Unseen pairs",
    "unseen_workload": "Unseen workloads",
    "unseen_platform": "Unseen platforms",
    "unseen_setting": "Unseen settings",
    "pairs_to_n": "From pairs to more",
    "n_up_to_k": "From few to more",
}
JUDGED = {
    "unseen_pair": "unseen pairs",
    "unseen_workload": "unseen workloads",
    "unseen_platform": "unseen platforms",
    "unseen_setting": "unseen settings",
    "pairs_to_n": "runs of three and more",
    "n_up_to_k": "runs of more than were trained on",
}
MEANING = {
    "random_row": "Rows left out at random; repeats of what is judged were trained on. It shows how good a leak "
    "looks; do not rely on it.",
    "unseen_pair": "Workloads that were seen, in pairs that were not: all rows of a pair are left out together.",
    "unseen_workload": "Every run that contains the workload is left out of training.",
    "unseen_platform": "Everything measured on a platform is left out of training.",
    "unseen_setting": "A pinning, cap or network mode that was never trained on.",
    "pairs_to_n": "Trained on runs of up to two instances, judged on runs of three and more.",
    "n_up_to_k": "Trained on runs of up to k instances, judged on larger ones, for each k from three on.",
}


def title(protocol: str) -> str:
    """A protocol as a heading."""
    return PROTOCOLS.get(protocol, protocol)


def headline(datasets: Sequence[Mapping[str, Any]]) -> str:
    """The errors that matter, or how many datasets there are."""
    if len(datasets) > 1:
        return f"{len(datasets)} datasets, each evaluated by itself."
    errors = [
        f"{points(figures['models'][_COTENANT]['mae'])} percentage points on {JUDGED.get(name, name)}"
        for name, figures in datasets[0]["protocols"].items()
        if _COTENANT in figures["models"] and name != "random_row"
    ]
    if not errors:
        return f"{datasets[0]['dataset']}: no figure of the model itself."
    listed = errors[0] if len(errors) == 1 else f"{', '.join(errors[:-1])} and {errors[-1]}"
    return f"The mean error is {listed}."


def summary(protocol: str, figures: Mapping[str, Any]) -> list[str]:
    """What one protocol shows for the model; empty where it was not evaluated."""
    if "skipped" in figures:
        return [f"{title(protocol)}: skipped, {figures['skipped']}."]
    ours = figures["models"].get(_COTENANT)
    return list(_sentences(protocol, figures, ours)) if ours else []


def _sentences(protocol: str, figures: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    between = f" (95{NBSP}% interval {edges(span)})" if (span := ours["intervals"]["mae"]) else ""
    yield (
        f"{title(protocol)}: off by {points(ours['mae'])} percentage points of the throughput alone on "
        f"average{between}, {share(ours['mape'])} of what was measured; nine in ten rows by less than "
        f"{points(ours['p90_abs_error'])}."
    )
    yield from _against(figures.get("difference"), "the best baseline")
    yield from _against(figures.get("difference_to_composition"), "the best composition of measured pairs")
    if ours["coverage"] is not None:
        verdict = "" if _AS_CLAIMED[0] <= ours["coverage"] <= _AS_CLAIMED[1] else ", not as claimed"
        yield f"Its 90{NBSP}% intervals held {share(ours['coverage'])} of the rows{verdict}."
    ratio = (ours["error_over_noise"] or {}).get("mae")
    if figures["noise"] and ratio is not None:
        yield (
            f"Repeats of one measurement lie so far apart that a perfect prediction would be off by "
            f"{points(figures['noise']['mae'])}; where there are repeats the error is {ratio:.2f} times that."
        )
    if (right := ours["pair_ranking_accuracy"]) is not None:
        yield (
            f"It ranks two neighbours by harm as measured in {share(right)} of the pairs that the measurement can rank."
        )


def _against(difference: Mapping[str, Any] | None, other: str) -> Iterator[str]:
    error = (difference or {}).get("mae")
    if not error:
        return
    value, span = error["value"], error["interval"]
    if span is None or span[0] <= 0 <= span[1]:
        verdict = "not significantly different"
    else:
        verdict = f"{'better' if value < 0 else 'worse'} by {points(abs(value))}"
    shown = f" (difference {edges(span)})" if span else ""
    yield f"Compared with {other}, {error['baseline']}, it is {verdict}{shown}."


if TYPE_CHECKING:
    from models.evaluation.run import Evaluation, ScatterPoints

OURS = frozenset({_COTENANT})
MOST_POINTS = 50  # rows on the page
_FIGURES = (
    Column("model", "Model", "name"), Column("mae", "MAE", "figure_between"), Column("mape", "MAPE", "share_between"),
    Column("p90_abs_error", "p90", "figure"), Column("mape_interfering", "Interfering", "share"),
    Column("pair_ranking_accuracy", "Ranking", "share"), Column("coverage", "Coverage", "share_between"),
    Column("interval_width", "Width", "figure"), Column("noise", "Noise", "times"), Column("rank", "Rank", "number"),
)  # fmt: skip
_BY = ("label", "rows", "mae", "mape", "prior_mae", "coverage")
_MEANING = {
    "T/B": "Relative throughput: that of an instance beside its neighbours over that alone. MAE, p90 and width are "
    "in percentage "
    "points of it: the mean error, the error that nine rows in ten stay under, the mean width of the 90 % intervals.",
    "MAPE": "The mean error as a share of what was measured.",
    "Interfering": "The mean error of the slowdown B/T, as a share of it, over rows that are slowed by more than a "
    "tenth.",
    "Ranking": "How often the model ranks two neighbours of the same victim by harm as the measurement does, where the "
    "measured difference exceeds twice its standard error.",
    "Coverage": "How often the 90 % interval held what was measured. In the pictures the line is what is claimed, red "
    "points are rows that the interval missed.",
    "Noise": "The mean error as a multiple of what a perfect prediction of the mean would show, by rows that were "
    "measured more than once.",
    "Small print": "95 % intervals from 2,000 resamples of whole pairs of workloads.",
    "Resource": "The one that limits a row most by the analytic model; the grey point is that model's own error.",
}


def evaluation_report(evaluations: Sequence[Evaluation]) -> ReportDocument:
    """All datasets in the given order; the same evaluations give the same report."""
    figures = [evaluation.figures for evaluation in evaluations]
    many = len(evaluations) > 1
    limits = {name: f"{text}." for evaluation in figures for name, text in evaluation["limits"].items()}
    return ReportDocument(
        what="evaluation",
        title=f"Evaluation of {', '.join(evaluation['dataset'] for evaluation in figures)}",
        headline=headline(figures),
        sentences=[
            f"{evaluation['dataset']}: {sentence}" if many else sentence
            for evaluation in figures
            for protocol, judged in evaluation["protocols"].items()
            for sentence in [" ".join(summary(protocol, judged))]
            if sentence
        ],
        facts={evaluation["dataset"]: _dataset(evaluation) for evaluation in figures},
        sections=[
            _ranks(evaluations, many=many),
            *(
                section
                for number, evaluation in enumerate(evaluations)
                for section in _sections(evaluation, f"d{number}", many=many)
            ),
            Section("how", "How to read this", facts={**_MEANING, **limits}),
        ],
    )


def _dataset(figures: Mapping[str, Any]) -> str:
    platforms = figures["platforms"]
    return (
        f"{figures['rows']:,} rows of {figures['workloads']} workloads on {platforms} "
        f"platform{'' if platforms == 1 else 's'}, {figures['columns']} columns; origin: {figures['origin']}"
    )


def _ranks(evaluations: Sequence[Evaluation], *, many: bool) -> Section:
    ranks = average_ranks(
        [
            protocol
            for evaluation in evaluations
            for name, protocol in evaluation.figures["protocols"].items()
            if name != "random_row"
        ]
    )
    columns = (Column("model", "Model", "name"), Column("rank", "Mean rank", "number"))
    rows = [(name, round(rank, 1)) for name, rank in ranks.items()]
    note = (
        "The place of each model among all by MAE and MAPE, 1 the best, as a mean over every protocol but random rows."
    )
    table = Table("ranks", "Mean rank of every model", columns, rows, picked=OURS)
    return Section("ranks", f"Mean rank{' over all datasets' if many else ''}", note, tables=[table])


def _sections(evaluation: Evaluation, salt: str, *, many: bool) -> Iterator[Section]:
    prefix = f"{evaluation.figures['dataset']}: " if many else ""
    for protocol, figures in evaluation.figures["protocols"].items():
        if figures["models"]:
            yield _protocol(evaluation, protocol, figures, salt, prefix)


def _protocol(evaluation: Evaluation, protocol: str, figures: Mapping[str, Any], salt: str, prefix: str) -> Section:
    rows = [_row(name, model) for name, model in (figures["models"] | figures.get("compositions", {})).items()]
    name = re.sub(r"[^a-z0-9_-]", "-", f"{salt}-{protocol}".lower())
    return Section(
        name,
        prefix + title(protocol),
        f"{MEANING.get(protocol, '')} {figures['rows']:,} rows judged in {count(figures['folds'], 'fold')}.",
        pictures=_pictures(evaluation, protocol, f"{salt} {protocol}"),
        tables=[
            Table(name, "Every model", _FIGURES, rows, picked=OURS),
            *_points(evaluation.points.get(protocol), name),
            *_parts(figures, name),
        ],
    )


def _row(name: str, errors: Mapping[str, Any]) -> tuple[Any, ...]:
    between = {
        key: (errors[key], errors["intervals"][key]) if errors[key] is not None else None
        for key in ("mae", "mape", "coverage")
    }
    return (
        name, between["mae"], between["mape"], errors["p90_abs_error"], errors["mape_interfering"],
        errors["pair_ranking_accuracy"], between["coverage"], errors["interval_width"],
        (errors["error_over_noise"] or {}).get("mae"), round(errors["rank"], 1) if "rank" in errors else None,
    )  # fmt: skip


def _points(points: ScatterPoints | None, name: str) -> Iterator[Table]:
    """The rows behind the picture of predicted against measured, largest errors first."""
    if points is None:
        return
    columns = (
        Column("measured", "Measured", "share"), Column("predicted", "Predicted", "share"),
        Column("held", "Interval held it"),
    )  # fmt: skip
    rows = [
        (measured, predicted, "yes" if held else "no")
        for measured, predicted, held in zip(
            points.measured.tolist(), points.predicted.tolist(), points.inside.tolist(), strict=True
        )
    ]
    rows.sort(key=lambda row: -abs(row[0] - row[1]))
    yield Table(
        f"{name}-points", "Predicted against measured, the furthest off first", columns, rows, MOST_POINTS, "folded"
    )


def _parts(figures: Mapping[str, Any], name: str) -> Iterator[Table]:
    """The figures behind the pictures: by predicted value, platform and limiting resource."""
    if "by_predicted" not in figures:
        return
    yield Table(
        f"{name}-predicted", "Coverage by predicted value",
        (Column("predicted", "Predicted", "ratio"), Column("measured", "Measured", "ratio"),
         Column("rows", "Rows", "count"), Column("coverage", "Coverage", "share")),
        [tuple(row[key] for key in ("predicted", "measured", "rows", "coverage")) for row in figures["by_predicted"]],
        look="folded",
    )  # fmt: skip
    for key, what in (("by_platform", "platform"), ("by_resource", "limiting resource")):
        yield Table(
            f"{name}-{key[3:]}", f"Errors and coverage by {what}",
            (Column("label", what.capitalize(), "name"), Column("rows", "Rows", "count"),
             Column("mae", "MAE", "figure"), Column("mape", "MAPE", "share"),
             Column("prior_mae", "The analytic model's MAE", "figure"), Column("coverage", "Coverage", "share")),
            [tuple(row.get(field) for field in _BY) for row in figures[key]],
            look="folded",
        )  # fmt: skip


def _pictures(evaluation: Evaluation, protocol: str, salt: str) -> list[Picture]:
    figures = evaluation.figures["protocols"][protocol]
    drawn = [Picture("Mean error of every model", errors(figures["models"], salt=f"{salt} errors"))]
    if protocol in evaluation.points:
        drawn.append(Picture("Predicted against measured", scatter(evaluation.points[protocol], salt=f"{salt} points")))
    if "by_predicted" in figures:
        by_predicted, by_platform = figures["by_predicted"], figures["by_platform"]
        drawn.append(Picture("Coverage by predicted value", coverage(by_predicted, salt=f"{salt} coverage")))
        drawn.append(Picture("Coverage by platform", platforms(by_platform, salt=f"{salt} platforms")))
        resources = errors_by_resource(figures["by_resource"], salt=f"{salt} resources")
        drawn.append(Picture("Error by limiting resource", resources))
    return drawn
