"""An evaluation laid out as a report: each dataset with sentences, pictures and tables of its protocols and curves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.reports import evaluation_pictures as pictures
from advisor.reports import evaluation_sentences as words
from advisor.reports.number_format import count
from advisor.reports.parts import Column, Picture, Report, Section, Table
from models.evaluation.results_table import average_ranks
from models.evaluation.run import Evaluation, ScatterPoints

CURVES = {"measured_pairs": "measured pairs of a new workload", "share_of_pairs": "share of all pairs"}
OURS = frozenset({words.OURS})
MOST_POINTS = 50  # rows on the page
_FIGURES = (
    Column("model", "Model", "name"), Column("mae", "MAE", "figure_between"), Column("mape", "MAPE", "share_between"),
    Column("p90_abs_error", "p90", "figure"), Column("mape_interfering", "Interfering", "share"),
    Column("pair_ranking_accuracy", "Ranking", "share"), Column("coverage", "Coverage", "share_between"),
    Column("interval_width", "Width", "figure"), Column("noise", "Noise", "times"), Column("rank", "Rank", "number"),
)  # fmt: skip
_BY = ("label", "rows", "mae", "mape", "prior_mae", "coverage")
_MEANING = {
    "T/B": "What an instance does beside its neighbours over what it does alone. MAE, p90 and width are in percentage "
    "points of it: the mean error, the error that nine rows in ten stay under, the mean width of the 90 % intervals.",
    "MAPE": "The mean error as a share of what was measured.",
    "Interfering": "The mean error of the slowdown B/T, as a share of it, over rows that are slowed by more than a "
    "tenth.",
    "Ranking": "How often it is told right which of two neighbours of the same victim hurts less, where the measured "
    "difference exceeds twice its standard error.",
    "Coverage": "How often the 90 % interval held what was measured. In the pictures the line is what is claimed, red "
    "points are rows that the interval missed.",
    "Noise": "The mean error as a multiple of what a perfect prediction of the mean would show, by rows that were "
    "measured more than once.",
    "Small print": "95 % intervals from 2,000 resamples of whole pairs of workloads.",
    "Resource": "The one that by the queueing prior holds a row back most; the grey point is the prior's own error.",
}


def evaluation_report(found: Sequence[Evaluation]) -> Report:
    """Every dataset in the order it was asked for; the same evaluations give the same report."""
    figures = [one.figures for one in found]
    many = len(found) > 1
    limits = {name: f"{text}." for one in figures for name, text in one["limits"].items()}
    return Report(
        what="evaluation",
        title=f"Evaluation of {', '.join(one['dataset'] for one in figures)}",
        headline=words.headline(figures),
        sentences=[
            f"{one['dataset']}: {sentence}" if many else sentence
            for one in figures
            for protocol, judged in one["protocols"].items()
            for sentence in [" ".join(words.summary(protocol, judged))]
            if sentence
        ],
        facts={one["dataset"]: _dataset(one) for one in figures},
        sections=[
            _ranks(found, many=many),
            *(section for number, one in enumerate(found) for section in _sections(one, f"d{number}", many=many)),
            Section("how", "How to read this", facts={**_MEANING, **limits}),
        ],
    )


def _dataset(figures: Mapping[str, Any]) -> str:
    platforms = figures["platforms"]
    return (
        f"{figures['rows']:,} rows of {figures['workloads']} workloads on {platforms} "
        f"platform{'' if platforms == 1 else 's'}, {figures['columns']} columns; origin: {figures['origin']}"
    )


def _ranks(found: Sequence[Evaluation], *, many: bool) -> Section:
    ranks = average_ranks(
        [one for each in found for name, one in each.figures["protocols"].items() if name != "random_row"]
    )
    columns = (Column("model", "Model", "name"), Column("rank", "Mean rank", "number"))
    rows = [(name, round(rank, 1)) for name, rank in ranks.items()]
    note = (
        "The place of each model among all by MAE and MAPE, 1 the best, as a mean over every protocol but random rows."
    )
    table = Table("ranks", "Mean rank of every model", columns, rows, picked=OURS)
    return Section("ranks", f"Mean rank{' over all datasets' if many else ''}", note, tables=[table])


def _sections(found: Evaluation, salt: str, *, many: bool) -> Iterator[Section]:
    prefix = f"{found.figures['dataset']}: " if many else ""
    for protocol, figures in found.figures["protocols"].items():
        if figures["models"]:
            yield _protocol(found, protocol, figures, salt, prefix)
    curves = {name: one for name, one in found.figures.get("curves", {}).items() if "skipped" not in one}
    if curves:
        yield Section(
            f"{salt}-curves",
            f"{prefix}Learning curves",
            "The same rows are judged along a curve. Ours with its 95 % interval, and the baselines that are best at "
            "the end.",
            pictures=[
                Picture(f"Mean error by {label}", pictures.curve(one, label, salt=f"{salt} {name}"))
                for name, one in curves.items()
                for label in [CURVES.get(name, name)]
            ],
            tables=[_curve(one, name, salt) for name, one in curves.items()],
        )  # fmt: skip


def _protocol(found: Evaluation, protocol: str, figures: Mapping[str, Any], salt: str, prefix: str) -> Section:
    rows = [_row(name, one) for name, one in (figures["models"] | figures.get("compositions", {})).items()]
    name = re.sub(r"[^a-z0-9_-]", "-", f"{salt}-{protocol}".lower())
    return Section(
        name,
        prefix + words.title(protocol),
        f"{words.MEANING.get(protocol, '')} {figures['rows']:,} rows judged in {count(figures['folds'], 'fold')}.",
        pictures=_pictures(found, protocol, f"{salt} {protocol}"),
        tables=[
            Table(name, "Every model", _FIGURES, rows, picked=OURS),
            *_points(found.points.get(protocol), name),
            *_parts(figures, name),
        ],
    )


def _row(name: str, one: Mapping[str, Any]) -> tuple[Any, ...]:
    between = {
        key: (one[key], one["intervals"][key]) if one[key] is not None else None for key in ("mae", "mape", "coverage")
    }
    return (
        name, between["mae"], between["mape"], one["p90_abs_error"], one["mape_interfering"],
        one["pair_ranking_accuracy"], between["coverage"], one["interval_width"],
        (one["error_over_noise"] or {}).get("mae"), round(one["rank"], 1) if "rank" in one else None,
    )  # fmt: skip


def _points(points: ScatterPoints | None, name: str) -> Iterator[Table]:
    """The rows behind the picture of predicted against measured, the furthest off first."""
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
    """The figures behind the pictures: by predicted value, by platform, by limiting resource."""
    if "by_predicted" not in figures:
        return
    yield Table(
        f"{name}-predicted", "Coverage by predicted value",
        (Column("predicted", "Predicted", "ratio"), Column("measured", "Measured", "ratio"),
         Column("rows", "Rows", "count"), Column("coverage", "Coverage", "share")),
        [tuple(one[key] for key in ("predicted", "measured", "rows", "coverage")) for one in figures["by_predicted"]],
        look="folded",
    )  # fmt: skip
    for key, what in (("by_platform", "platform"), ("by_resource", "limiting resource")):
        yield Table(
            f"{name}-{key[3:]}", f"Errors and coverage by {what}",
            (Column("label", what.capitalize(), "name"), Column("rows", "Rows", "count"),
             Column("mae", "MAE", "figure"), Column("mape", "MAPE", "share"),
             Column("prior_mae", "The prior's MAE", "figure"), Column("coverage", "Coverage", "share")),
            [tuple(one.get(field) for field in _BY) for one in figures[key]],
            look="folded",
        )  # fmt: skip


def _curve(one: Mapping[str, Any], name: str, salt: str) -> Table:
    label = CURVES.get(name, name)
    columns = (
        Column("model", "Model", "name"),
        Column("x", label.capitalize(), "number"),
        Column("mae", "MAE", "figure_between"),
    )
    rows = [
        (model, x, (mae, edges))
        for model, of in one["models"].items()
        for x, mae, edges in zip(one["x"], of["mae"], of["mae_intervals"], strict=True)
    ]
    return Table(f"{salt}-curve-{name}", f"Mean error by {label}", columns, rows, look="folded", picked=OURS)


def _pictures(found: Evaluation, protocol: str, salt: str) -> list[Picture]:
    figures = found.figures["protocols"][protocol]
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
