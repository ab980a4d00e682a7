"""The scores of VMs in the report of a cloud: now by host, the lowest ones, and the cloud over time."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from advisor.domain import LOW_SCORE, SCORE_BUCKETS, CloudScores, ScorePoint, ScoreSummary
from advisor.reports.number_format import count
from advisor.reports.parts import Column, Picture, Section, Table, drawn
from profiler import pictures
from profiler.look import AFTER, BEFORE, inline

MOST_HOSTS, MOST_VMS = 50, 25  # rows on the page
LEAST_POINTS = 3  # of a picture over time
_BUCKETS = tuple(Column(f"score_{name.replace('-', '_')}", name, "count") for name in SCORE_BUCKETS)


def scores(now: CloudScores | None, history: Sequence[ScorePoint]) -> Section:
    """Empty where the scores are not known, as with a file: the plan's own table has the predicted ones then."""
    if now is None or now.cloud.mean is None:
        return Section("scores", "Scores of VMs now")
    cloud = now.cloud
    by_host = [("cloud", *_figures(cloud)), *((host, *_figures(of)) for host, of in now.hosts_lowest_first)]
    columns = (
        Column("host", "", "name"), Column("instances", "VMs", "count"), Column("measured", "Measured", "count"),
        Column("score", "Mean score", "number"), Column("score_lowest", "Lowest", "number"), *_BUCKETS,
    )  # fmt: skip
    vms = [
        (one.instance, one.host, round(one.score, 1), one.source, one.cpu, one.devices, one.memory)
        for one in now.lowest(cloud.instances)
    ]
    vm_columns = (
        Column("instance", "VM", "name"), Column("host", "Host"), Column("score", "Score", "number"),
        Column("source", "By"), Column("cpu", "CPU delivered", "share"), Column("devices", "Devices leave", "share"),
        Column("memory", "Not stalled for memory", "share"),
    )  # fmt: skip
    return Section(
        "scores",
        "Scores of VMs now",
        "100 = uncontended: CPU delivered, times what devices leave beyond it, times the part of the time without "
        "stalls for memory.",
        sentences=[
            f"The mean score is {cloud.mean:.0f} and the lowest {cloud.lowest:.0f}; {count(cloud.low, 'VM')} of "
            f"{cloud.instances:,} {'is' if cloud.low == 1 else 'are'} below {LOW_SCORE:.0f}. CPU delivered was "
            f"{_measured(cloud)}."
        ],
        pictures=[Picture("Score of the cloud over time", over_time(history))] if len(history) >= LEAST_POINTS else [],
        tables=[
            Table("scores_now", "Hosts, the lowest mean first", columns, by_host, most=MOST_HOSTS),
            Table("lowest_scores", f"VMs below {LOW_SCORE:.0f}", vm_columns, vms, most=MOST_VMS),
            Table("score_history", "The cloud over time", _TIME_COLUMNS, _rows(history), look="folded"),
        ],
    )


_TIME_COLUMNS = (
    Column("time", "Until", "name"), Column("instances", "VMs", "count"), Column("measured", "Measured", "count"),
    Column("score", "Mean score", "number"), Column("score_lowest", "Lowest", "number"), *_BUCKETS,
)  # fmt: skip


def _measured(of: ScoreSummary) -> str:
    if of.measured == of.instances:
        return "measured for all"
    return f"measured for {of.measured:,}, and is predicted for the others"


def _rows(history: Sequence[ScorePoint]) -> list[tuple[object, ...]]:
    return [(f"{point.time:%Y-%m-%d %H:%M} UTC", *_figures(point.scores)) for point in history]


def _figures(of: ScoreSummary) -> tuple[float | None, ...]:
    return (of.instances, of.measured, _rounded(of.mean), _rounded(of.lowest), *of.counts)


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 1)


@drawn
def over_time(history: Sequence[ScorePoint]) -> Markup:
    """Mean and lowest score, in hours before the last window."""
    last = history[-1].time
    hours = [(point.time - last).total_seconds() / 3600 for point in history]
    figure, (axes,) = pictures.new_figure(1, columns=1, width=6.0, height=2.2)
    axes.plot(hours, [point.scores.mean for point in history], "-", color=AFTER, label="mean")
    axes.plot(hours, [point.scores.lowest for point in history], "--", color=BEFORE, label="lowest")
    axes.set_ylim(0, 105)
    pictures.label(axes, x="hours before the last window", y="score")
    pictures.legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return inline(figure, f"scores {last:%Y%m%d%H%M}", "Mean and lowest score over time; the table has every figure")
