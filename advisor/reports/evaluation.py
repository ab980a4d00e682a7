"""The report of evaluations: each dataset with sentences, pictures and tables of its protocols."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from advisor.reports import evaluation_pictures as pictures
from advisor.reports import evaluation_sentences as words
from advisor.reports.number_format import count
from advisor.reports.parts import Column, Picture, ReportDocument, Section, Table
from models.evaluation.results_table import average_ranks

if TYPE_CHECKING:
    from models.evaluation.run import Evaluation, ScatterPoints

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
        headline=words.headline(figures),
        sentences=[
            f"{evaluation['dataset']}: {sentence}" if many else sentence
            for evaluation in figures
            for protocol, judged in evaluation["protocols"].items()
            for sentence in [" ".join(words.summary(protocol, judged))]
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
        prefix + words.title(protocol),
        f"{words.MEANING.get(protocol, '')} {figures['rows']:,} rows judged in {count(figures['folds'], 'fold')}.",
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
    drawn = [Picture("Mean error of every model", pictures.errors(figures["models"], salt=f"{salt} errors"))]
    if protocol in evaluation.points:
        drawn.append(
            Picture("Predicted against measured", pictures.scatter(evaluation.points[protocol], salt=f"{salt} points"))
        )
    if "by_predicted" in figures:
        by_predicted, by_platform = figures["by_predicted"], figures["by_platform"]
        drawn.append(Picture("Coverage by predicted value", pictures.coverage(by_predicted, salt=f"{salt} coverage")))
        drawn.append(Picture("Coverage by platform", pictures.platforms(by_platform, salt=f"{salt} platforms")))
        resources = pictures.resources(figures["by_resource"], salt=f"{salt} resources")
        drawn.append(Picture("Error by limiting resource", resources))
    return drawn
