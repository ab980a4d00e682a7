"""The report on the effect of the advice: predicted against measured, followers beside others, alternatives."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from advisor.domain import AdviceWorth, Band, PlacementWorth, PredictedAndMeasured
from advisor.reports.parts import Column, Picture, ReportDocument, Section, Table, drawn
from profiler.look import AFTER, inline
from profiler.pictures import SOFT, diagonal, label, new_figure

_SIDE = 3.4  # inches


def worth_report(worth: AdviceWorth) -> ReportDocument:
    """The report; the same findings give the same report."""
    return ReportDocument(
        what="worth",
        title="Effect of the advice",
        headline=worth.sentences[0],
        sentences=worth.sentences[1:],
        facts={
            "Instances that came": f"from {worth.since:%Y-%m-%d %H:%M} to {worth.until:%Y-%m-%d %H:%M} UTC",
            "Share": "CPU delivered, run / (run + wait), in windows of five minutes of the instance's first week "
            "there, "
            "without waiting for its own cap.",
            "Alternatives": "predicted now by the active model, with the demand known by now and the present "
            "residents, "
            "whether or not there is room.",
        },
        sections=[_predictions(worth), _beside(worth), _placements(worth), _alternatives(worth)],
        made_at=worth.until,
    )


def _predictions(worth: AdviceWorth) -> Section:
    points = [
        (placement.band.expected, placement.new_vm.observed)
        for placement in worth.placements
        if placement.band is not None and placement.new_vm is not None
    ]
    drawn = []
    if points:
        caption = "One point for each placement"
        drawn = [
            Picture(
                caption, predicted_and_measured(points), "on the line both are the same; every figure stands in a table"
            )
        ]
    return Section("predicted", "Predicted against measured", pictures=drawn, tables=[_sums(worth)])


def _sums(worth: AdviceWorth) -> Table:
    columns = (
        Column("who", "Who", "name"), Column("windows", "Windows", "count"),
        Column("predicted", "predicted", "ratio", "Share"),
        Column("observed", "measured", "ratio", "Share"), Column("inside", "In range", "share"),
        Column("contended", "Windows", "count", "Contended"),
        Column("contended_predicted", "predicted", "ratio", "Contended"),
        Column("contended_observed", "measured", "ratio", "Contended"),
    )  # fmt: skip
    rows = [(who, *_figures(sums)) for who, sums in worth.followed.items()]
    return Table("predicted", "Placements that followed the advice", columns, rows)


def _figures(sums: PredictedAndMeasured) -> tuple[float | None, ...]:
    return (
        sums.windows, sums.predicted, sums.observed, sums.inside, sums.contended, sums.contended_predicted,
        sums.contended_observed,
    )  # fmt: skip


def _beside(worth: AdviceWorth) -> Section:
    columns = (
        Column("who", "Group", "name"), Column("followed", "followed", "ratio", "Share of those that"),
        Column("not_followed", "did not", "ratio", "Share of those that"),
        Column("difference", "Difference", "figure_between"),
        Column("group", "all", "count", "Followed"), Column("matched", "with a like", "count", "Followed"),
        Column("others", "Others like them", "count"), Column("hosts", "Hosts", "count"),
    )  # fmt: skip
    rows = [
        (
            group.who, group.followed, group.not_followed,
            None if group.lower is None or group.upper is None else (group.difference, (group.lower, group.upper)),
            group.group, group.matched, group.others, group.hosts,
        )
        for group in worth.beside
    ]  # fmt: skip
    note = "At least 20 VMs in each group, on 8 hosts and from 5 days, are needed for a comparison."
    return Section(
        "beside", "Compared with similar instances", note, tables=[Table("beside", "Matched groups", columns, rows)]
    )


def _placements(worth: AdviceWorth) -> Section:
    columns = (
        Column("asked", "Asked (UTC)", "when"), Column("instance", "Instance", "name"), Column("host", "Went to"),
        Column("advised", "Advised"), Column("heeded", "What became of it"), Column("band", "Predicted", "band"),
        Column("observed", "Measured", "ratio"), Column("windows", "Windows", "count"),
        Column("residents_predicted", "predicted", "ratio", "Those before it"),
        Column("residents_observed", "measured", "ratio", "Those before it"),
    )  # fmt: skip
    return Section(
        "placements",
        "Every placement",
        tables=[Table("placements", "The newest", columns, [_row(placement) for placement in worth.placements])],
    )


def _row(placement: PlacementWorth) -> tuple[object, ...]:
    mine, theirs = placement.new_vm, placement.residents
    predicted = placement.band
    band = None if predicted is None else Band(predicted.expected, predicted.lower, predicted.upper)
    return (
        placement.asked_at, placement.instance, placement.host, placement.advised, placement.heeded, band,
        mine and mine.observed,
        mine.windows if mine else 0, theirs and theirs.predicted, theirs and theirs.observed,
    )  # fmt: skip


def _alternatives(worth: AdviceWorth) -> Section:
    columns = (
        Column("instance", "Instance", "name"), Column("host", "Host"), Column("why", "Why this one"),
        Column("share", "Its share", "ratio"), Column("others", "it there", "ratio", "Others, with"),
        Column("others_here", "it where it is", "ratio", "Others, with"),
    )  # fmt: skip
    why = {"here": "it is here", "answer": "in the answer", "most_free": "most was free"}
    rows = [
        (placement.instance, other.host, why[other.why], other.share, other.others, other.others_here)
        for placement in worth.placements
        for other in placement.alternatives
    ]
    note = "Predicted now. Others are all on this host and on the one where the instance is."
    return Section(
        "alternatives",
        "What other hosts would have given",
        note,
        tables=[Table("alternatives", "Hosts", columns, rows)],
    )


@drawn
def predicted_and_measured(points: Sequence[tuple[float, float]]) -> Markup:
    """One point for each placement: the share that was predicted, and that which was measured."""
    figure, (axes,) = new_figure(width=_SIDE, height=_SIDE)
    low = max(min(min(point) for point in points) - 0.05, 0.0)
    diagonal(axes, low, 1.02)
    axes.plot(*zip(*points, strict=True), "o", color=AFTER, markersize=4, alpha=0.7)
    axes.set_xlim(low, 1.02)
    axes.set_ylim(low, 1.02)
    axes.tick_params(colors=SOFT)
    label(axes, x="predicted share", y="measured share")
    return inline(figure, "predicted and measured", "Measured against predicted share, one point for each placement")
