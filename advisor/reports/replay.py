"""The report of a replay: policies side by side, over time, and by their distribution of slowdown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from advisor.domain.replays import FAIR_SHARES, Replay, Replayed
from advisor.reports.parts import (
    NBSP,
    Column,
    Kind,
    Picture,
    ReportDocument,
    Section,
    Table,
    count,
    drawn,
    joined,
    percent,
    share,
)
from advisor.reports.shared_sentences import origin
from profiler.look import AFTER, inline, short
from profiler.pictures import INK, LINE, SOFT, label, legend_below, line_at, new_figure, series_style

# Pictures of a replay as inline SVG: hosts and violations over time, and the distribution of T/B.

_MOST_DRAWN = 400  # of one line; of more the highest in each stretch is drawn
_WIDTH, _HEIGHT = 3.9, 2.7  # inches
_NAME_WIDE, _NAME_HIGH = 0.4, 0.1  # of a name, as a share of how far the points lie apart
_OURS, _BOUND = "cotenant", "lower bound"


@drawn
def panels(
    hours: Sequence[float], lines: Mapping[str, Sequence[float]], words: str, salt: str, *, step: float
) -> Markup:
    """A panel per policy over the hours of the trace, on one scale; each moment lasts `step` hours."""
    figure, axes = new_figure(len(lines), columns=1, width=2.2 * _WIDTH, height=0.5 + 0.72 * len(lines))
    top = max(1, *(max(values) for values in lines.values()))
    for number, (panel, (policy, values)) in enumerate(zip(axes, lines.items(), strict=True)):
        x, y = _peaks(hours, values)
        panel.fill_between(
            [*x, hours[-1] + step], [*y, y[-1]], step="post", color=_style(policy, number)["color"], linewidth=0
        )
        panel.set_ylim(0, 1.1 * top)
        panel.set_xlim(hours[0], hours[-1] + step)
        panel.locator_params(axis="y", nbins=3, integer=True)
        panel.tick_params(axis="x", labelbottom=number == len(lines) - 1)
        panel.set_ylabel(short(policy), rotation=0, ha="right", va="center", fontsize=8, color=INK)
    axes[-1].set_xlabel("hours since the trace began", fontsize=8, color=SOFT)
    return inline(figure, f"{salt} {words}", f"{words} over the hours of the trace, a panel per policy, on one scale")


def _peaks(hours: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The highest value of each stretch, where there are too many moments to draw."""
    size = math.ceil(len(values) / _MOST_DRAWN)
    starts = range(0, len(values), size)
    return [hours[at] for at in starts], [max(values[at : at + size]) for at in starts]


@drawn
def spread(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], keep: float, salt: str) -> Markup:
    """The share of instance-moments at or below each T/B, one line per policy: (shares, ratios)."""
    figure, (axes,) = new_figure(width=2.2 * _WIDTH, height=_HEIGHT)
    for number, (policy, (shares, ratios)) in enumerate(lines.items()):
        axes.plot(ratios, shares, label=short(policy), marker="o", markersize=2.5, **_style(policy, number))
    line_at(axes, keep, vertical=True)
    axes.set_yscale("log")  # the interesting part is the small share that suffers
    least = min((share for shares, _ in lines.values() for share in shares if share > 0), default=0.01)
    axes.set_ylim(max(least, 1e-4) * 0.8, 1.2)
    axes.yaxis.set_major_formatter(lambda value, _at: f"{100 * value:g} %")
    axes.yaxis.set_minor_formatter("")
    axes.xaxis.set_major_formatter(lambda value, _at: f"{100 * value:.0f} %")
    label(axes, x="predicted T/B", y="instance-moments up to it")
    legend_below(figure, 6)
    return inline(
        figure, f"{salt} spread", "Share of instance-moments up to each predicted T/B; the table has the quantiles"
    )


@drawn
def against(points: Mapping[str, tuple[float, float]], salt: str) -> Markup:
    """Mean hosts in use against the share of instance-moments below the limit; lower left is better."""
    figure, (axes,) = new_figure(width=_WIDTH, height=_HEIGHT)
    alike: dict[tuple[float, float], list[str]] = {}
    for policy, (hosts, part) in points.items():
        alike.setdefault((round(hosts, 1), round(100 * part, 1)), []).append(policy)
    most = max(part for _, part in alike) or 1.0
    wide = max(hosts for hosts, _ in alike) - min(hosts for hosts, _ in alike)
    named: list[tuple[float, float]] = []  # hosts, and how high the names there reach
    for (hosts, part), policies in sorted(alike.items(), key=lambda entry: entry[0][1]):
        ours = _OURS in policies
        axes.plot([hosts], [part], "o", color=AFTER if ours else SOFT, markersize=6 if ours else 4.5)
        bottom = max([part, *(top for other, top in named if abs(other - hosts) <= _NAME_WIDE * wide)])
        axes.annotate(
            "\n".join(short(policy) for policy in policies), (hosts, bottom), color=INK if ours else SOFT, fontsize=8,
            va="bottom", xytext=(5, 3), textcoords="offset points",
        )  # fmt: skip
        named.append((hosts, bottom + _NAME_HIGH * most * len(policies)))
    axes.margins(x=0.35)
    axes.set_ylim(-0.05 * most, max(1.35 * most, *(top + 0.05 * most for _, top in named)))
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= 1.3 * most])
    axes.grid(axis="x", color=LINE, linewidth=0.7)
    label(axes, x="hosts in use, mean", y="below the limit, %")
    return inline(
        figure, f"{salt} against", "Hosts in use against violations, one point per policy; the table has every figure"
    )


def _style(policy: str, number: int) -> dict[str, Any]:
    if policy == _OURS:
        return {"color": AFTER, "linewidth": 2.0, "linestyle": "-"}
    if policy == _BOUND:
        return {"color": SOFT, "linewidth": 1.2, "linestyle": ":"}
    return {"linewidth": 1.3} | series_style(number)


_HOUR_S = 3600
OURS = frozenset({"cotenant"})
MOST_MOMENTS = 100  # rows over time on the page
QUANTILES = (0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)  # those of the table, where the replay has them

_BEYOND_COMPARE = {"cotenant", "peak oracle"}  # in the headline: itself, and who knows the future


def replay_report(replay: Replay) -> ReportDocument:
    """The report of a replay; the same replay gives the same report."""
    first, *others = re.split(r"(?<=\.) (?=[A-Z])", replay.conclusion.replace(" %", f"{NBSP}%"))
    return ReportDocument(
        what="replay",
        title=f"Replay of {replay.trace}",
        headline=_headline(replay),
        sentences=[
            first,
            "Demand is the trace's, and placements are simulated. An instance-moment is one instance at one moment.",
            *others,
        ],
        facts={
            "Trace": f"{count(replay.instances, 'instance')} over {count(replay.steps, 'moment')} of "
            f"{replay.interval_s:g} s ({replay.steps * replay.interval_s / _HOUR_S:,.1f} hours), read as {replay.form}",
            "Hosts": f"{replay.hosts:,} of {replay.host_type}"
            + (f", in {replay.shards} clouds of their own" if replay.shards > 1 else ""),
            "Limit": f"expected T/B of {percent(replay.keep_ratio)}; an instance under it counts as below at that "
            f"moment",
            "Model": f"{replay.model_version}: {origin(replay.model_origin)}.",
            "Judge": _judge(replay),
            "Seeds": ", ".join(str(seed) for seed in replay.seeds)
            + ("; what is not said of another one is of the first" if len(replay.seeds) > 1 else ""),
        },
        sections=[
            _side_by_side(replay),
            _over_time(replay),
            _spread(replay),
            _repeats(replay),
            Section(
                "assumed",
                "What was assumed",
                sentences=[assumption.replace(" %", f"{NBSP}%") for assumption in replay.assumptions],
            ),
            _how(replay),
        ],
        made_at=replay.generated_at,
    )


def _judge(replay: Replay) -> str:
    if replay.judge_version == FAIR_SHARES:
        return (
            "a fair share of each host's CPUs, network and disk for the demand of each step; no model has a part in it"
        )
    if replay.judge_version in ("", replay.model_version):
        return "the same model"
    return f"{replay.judge_version}: {origin(replay.judge_origin)}."


def _headline(replay: Replay) -> str:
    """The advisor's two figures beside the best of the other policies in each; no verdict."""
    by_name = {policy.policy: policy for policy in replay.policies}
    ours = by_name.get("cotenant")
    others = [policy for policy in _placing(replay) if policy.policy not in _BEYOND_COMPARE]
    if ours is None or not others:
        return f"{len(replay.policies)} {'policy' if len(replay.policies) == 1 else 'policies'} on the same demand."
    fewest = min(others, key=lambda policy: (policy.hosts_mean, policy.violation_share, policy.policy))
    least = min(others, key=lambda policy: (policy.violation_share, policy.hosts_mean, policy.policy))
    theirs = [
        f"{policy.policy}: {share(policy.violation_share)} on {policy.hosts_mean:.1f} hosts{_turned_away(policy)}"
        for policy in ((least,) if least is fewest else (least, fewest))
    ]
    return (
        f"Simulated: {share(ours.violation_share)} of instance-moments below the limit on {ours.hosts_mean:.1f} hosts"
        f"{_turned_away(ours)}; {'; '.join(theirs)}."
    )


def _turned_away(policy: Replayed) -> str:
    """The number of refused instances, because refusing improves the other figures."""
    return f" ({count(policy.refused, 'instance')} refused)" if policy.refused else ""


def _placing(replay: Replay) -> list[Replayed]:
    """The policies that place instances: all but the lower bound."""
    return [policy for policy in replay.policies if policy.mean is not None]


def _side_by_side(replay: Replay) -> Section:
    columns = (
        Column("policy", "Policy", "name"), Column("hosts_mean", "mean", "number", "Hosts in use"),
        Column("hosts_most", "most", "count", "Hosts in use"),
        Column("violation_share", "below the limit", "share", "Instance-moments"),
        Column("violations", "that is", "count", "Instance-moments"),
        Column("instance_moments", "of", "count", "Instance-moments"),
        Column("worst", "worst", "ratio", "T/B"), Column("mean", "mean", "share", "T/B"),
        Column("moves", "Moves", "count"), Column("refused", "Refused", "count"),
    )  # fmt: skip
    deciding = (
        Column("policy", "Policy", "name"), Column("decisions", "Decisions", "count"),
        Column("decision_s", "All of them, s", "number"), Column("longest_decision_s", "The longest, s", "number"),
    )  # fmt: skip
    rows = [
        (policy.policy, round(policy.hosts_mean, 2), max(policy.hosts_used, default=0), *(
            (policy.violation_share, policy.violations, policy.instance_moments, policy.worst, policy.mean,
             policy.moves, policy.refused)
            if policy.mean is not None else (None,) * 7
        ))
        for policy in replay.policies
    ]  # fmt: skip
    times = [
        (policy.policy, policy.decisions, policy.decision_s, policy.longest_decision_s) for policy in _placing(replay)
    ]
    points = {policy.policy: (policy.hosts_mean, policy.violation_share) for policy in _placing(replay)}
    drawn = []
    if points:
        svg = against(points, replay.trace)
        drawn = [Picture("Hosts against violations", svg, "lower and further left is better")]
    return Section(
        "policies",
        "Policies side by side",
        "All see the same demand and the same hosts, at the same limits. The lower bound places no instance: with "
        "fewer hosts no policy can take every instance and keep it at the limit; one that leaves some below it or "
        "refuses some may need fewer.",
        pictures=drawn,
        tables=[
            Table("policies", "Over the whole trace", columns, rows, picked=OURS),
            Table("deciding", "How long deciding took", deciding, times, look="folded", picked=OURS),
        ],
    )  # fmt: skip


def _over_time(replay: Replay) -> Section:
    hours = [time / _HOUR_S for time in replay.times_s]
    series: list[tuple[str, Kind, Mapping[str, Sequence[float]]]] = [
        (over, kind, {name: values for name, values in lines.items() if values and len(values) == len(hours)})
        for over, kind, lines in _lines(replay.policies)
    ]
    columns = [Column("hours", "Hours", "number")]
    columns += [Column(_key(f"{over} {name}"), name, kind, over) for over, kind, lines in series for name in lines]
    rows = [
        (round(hour, 4), *(values[at] for _, _, lines in series for values in lines.values()))
        for at, hour in enumerate(hours)
    ]
    (_, _, used), (_, _, below), _ = series
    changing = {policy: values for policy, values in used.items() if len(set(values)) > 1}
    harmed = {policy: values for policy, values in below.items() if any(values)}
    drawn = [
        Picture(
            f"{words[:1].upper()}{words[1:]} over time",
            panels(hours, lines, words, replay.trace, step=replay.interval_s / _HOUR_S),
            _thinned(hours),
            broad=True,
        )
        for words, lines in (("hosts in use", changing), ("instances below the limit", harmed))
        if lines
    ]
    table = Table("over_time", "Every moment in a table", columns, rows, most=MOST_MOMENTS, look="folded")
    note = f"Of the first seed, {replay.seeds[0]}." if replay.seeds else ""
    if constant := [policy for policy in used if policy not in changing]:
        note += f" The same number of hosts all the time: {joined(constant)}."
    if harmless := [policy for policy in below if policy not in harmed]:
        note += f" No instance below the limit at any moment: {joined(harmless)}."
    return Section("time", "Over time", note, pictures=drawn, tables=[table])


def _lines(policies: Sequence[Replayed]) -> tuple[tuple[str, Kind, Mapping[str, Sequence[float]]], ...]:
    return (
        ("Hosts in use", "count", {policy.policy: policy.hosts_used for policy in policies}),
        ("Below the limit", "count", {policy.policy: policy.below for policy in policies}),
        ("Lowest T/B", "ratio", {policy.policy: policy.worst_over_time for policy in policies}),
    )


def _thinned(hours: Sequence[float]) -> str:
    many = len(hours) > _MOST_DRAWN
    return f"of each stretch of {-(-len(hours) // _MOST_DRAWN)} moments the highest" if many else ""


def _key(policy: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", policy.lower())


def _spread(replay: Replay) -> Section:
    known = [(policy.policy, policy.ratios) for policy in _placing(replay) if policy.ratios is not None]
    lines = {policy: (ratios.quantiles, ratios.expected) for policy, ratios in known}
    rows = [
        (policy, edge, expected, lower)
        for policy, ratios in known
        for edge, expected, lower in zip(ratios.quantiles, ratios.expected, ratios.lower, strict=True)
    ]
    short = [
        (policy, *(dict(zip(ratios.quantiles, ratios.expected, strict=True)).get(edge) for edge in QUANTILES))
        for policy, ratios in known
    ]
    heads = [Column(f"q{edge:g}", _edge(edge), "ratio") for edge in QUANTILES]
    columns = (
        Column("policy", "Policy", "name"), Column("quantile", "Share up to", "share"),
        Column("expected", "T/B", "ratio"), Column("lower", "Lower edge", "ratio"),
    )  # fmt: skip
    drawn = []
    if lines:
        svg = spread(lines, replay.keep_ratio, replay.trace)
        caption = "How much of all instance-moments stays at or below each T/B"
        drawn = [Picture(caption, svg, "the points stand in the table; the vertical line is the limit", broad=True)]
    quantiles = (Column("policy", "Policy", "name"), *heads)
    return Section(
        "spread",
        "Remaining throughput",
        "One instance at one moment counts once. The share is drawn on a logarithmic scale, because the affected part "
        "is small. Policies with the same result hide one another.",
        pictures=drawn,
        tables=[
            Table("quantiles", "T/B at some shares of all instance-moments", quantiles, short, picked=OURS),
            Table("spread", "Every quantile, with the lower edge of the interval", columns, rows, look="folded"),
        ],
    )


def _edge(share: float) -> str:
    return {0.0: "least", 1.0: "most"}.get(share, f"{100 * share:g} % up to")


def _repeats(replay: Replay) -> Section:
    columns = (
        Column("policy", "Policy", "name"), Column("seed", "Seed", "count"),
        Column("hosts_mean", "Hosts, mean", "number"),
        Column("violation_share", "Below the limit", "share"), Column("worst", "Worst T/B", "ratio"),
        Column("mean", "Mean T/B", "share"), Column("moves", "Moves", "count"), Column("refused", "Refused", "count"),
    )  # fmt: skip
    rows = [
        (policy.policy, repeat.seed, round(repeat.hosts_mean, 2), repeat.violation_share, repeat.worst, repeat.mean,
         repeat.moves, repeat.refused)
        for policy in replay.policies
        for repeat in policy.repeats
    ]  # fmt: skip
    note = (
        "How far the figures change with other random seeds: drawn workloads, and the hosts that the random policy "
        "chooses."
    )
    table = Table("seeds", "Every seed", columns, rows if len(replay.seeds) > 1 else ())
    return Section("seeds", "Under other seeds", note, tables=[table])


def _how(replay: Replay) -> Section:
    return Section(
        "how",
        "How these figures were obtained",
        facts={
            "What they are": "Simulated: instances of the trace arrive in its order, each policy places them on the "
            "same hosts, and at every moment the judge says what T/B each has.",
            "T/B": "Relative throughput: that of an instance beside its neighbours over that alone on the same host.",
            "Below the limit": f"Its expected T/B is under {percent(replay.keep_ratio)} at that moment.",
            "Peak oracle": "It knows all future demand, as no scheduler does: the fullest host whose CPUs will suffice "
            "for all its instances, else the one that will lack least.",
            "Lower bound": "The fewest hosts that can hold the sizes of all instances and carry their demand with each "
            "at the limit, moment by moment, as if every instance could be moved at any time.",
            "Deciding": "Wall-clock time of all decisions of one policy on the machine that ran the replay.",
        },
    )
