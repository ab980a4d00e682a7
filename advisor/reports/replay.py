"""The report of a replay: policies side by side, over time, and by their distribution of T/B."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from advisor.domain.replays import FAIR_SHARES, Replay, Replayed
from advisor.reports import replay_pictures as pictures
from advisor.reports.number_format import NBSP, count, joined, percent, share
from advisor.reports.parts import Column, Kind, Picture, ReportDocument, Section, Table
from advisor.reports.shared_sentences import origin

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
        svg = pictures.against(points, replay.trace)
        drawn = [Picture("Hosts against violations", svg, "down and left is better")]
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
            pictures.panels(hours, lines, words, replay.trace, step=replay.interval_s / _HOUR_S),
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
    many = len(hours) > pictures.MOST_MOMENTS
    return f"of each stretch of {-(-len(hours) // pictures.MOST_MOMENTS)} moments the highest" if many else ""


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
        svg = pictures.spread(lines, replay.keep_ratio, replay.trace)
        caption = "How much of all instance-moments stays at or below each T/B"
        drawn = [Picture(caption, svg, "the points stand in the table; the vertical line is the limit", broad=True)]
    quantiles = (Column("policy", "Policy", "name"), *heads)
    return Section(
        "spread",
        "What is left of the throughput",
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
    note = "How far the figures move when lots are drawn anew: what runs, if that is drawn, and random's hosts."
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
