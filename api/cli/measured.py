"""`cotenant score`, `slowing`, `obtained`, `worth`, `doctor`: what was measured of VMs, and what is wrong now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from advisor import offline
from advisor.domain import (
    SCORE_BUCKETS,
    AdviceWorth,
    Checkup,
    HostSlowing,
    InstanceObtained,
    PlacementWorth,
    PredictedAndMeasured,
    ScorePoint,
    ScoreSummary,
    SlowingPair,
    VmScore,
)
from advisor.errors import InvalidInput
from api.cli.asking import ServerOrDatabase, TokenFile, asked_cloud
from api.cli.lazy import FAILED
from api.cli.options import AsJson, Database, ReportOut
from api.cli.output import print_json, print_table, say
from api.schemas.quality import HostScoresOut, ScoresOut, VmScoresOut

# `cotenant obtained`: what an instance got of the CPU time that it wanted, and its stalls at disks and networks.


def obtained(
    instance: Annotated[str, typer.Argument(help="The instance, by id or name.")],
    since: Annotated[str, typer.Option(metavar="TIME", help="How far back: 90m, 24h, 7d.")] = "24h",
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Show what was measured of an instance: CPU delivered, and stalls at disks and networks.

    By windows of five minutes; 95 % of them were no worse than the second figure. What its host does not measure is
    left out (cotenant-profiler check says why).
    """
    with asked_cloud(server, token_file, database) as cloud:
        name = cloud.id_of("instances", instance)
        measured = cloud.ask(
            InstanceObtained,
            lambda advisor: advisor.telemetry.obtained(name, since=since),
            *("instances", name, "obtained"),
            since=since,
        )
    if as_json:
        print_json(measured)
        return
    if not measured.outcomes:
        say(f"Nothing was measured of {instance} in the last {since}.")
        return
    print_table(
        ("outcome", "unit", "mean", "95 % no worse", "worst", "windows", "is"),
        [
            (
                outcome.metric,
                outcome.unit,
                *(f"{value:.3g}" for value in (outcome.mean, outcome.tail, outcome.worst)),
                str(outcome.windows),
                outcome.help,
            )
            for outcome in measured.outcomes
        ],
        right=(2, 3, 4, 5),
    )


# `cotenant slowing`: which instances slow which on a host, predicted beside measured.


def slowing(
    host: Annotated[str, typer.Argument(help="The host, by id or name.")],
    since: Annotated[str, typer.Option(metavar="TIME", help="How far back: 90m, 24h, 7d.")] = "24h",
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Show which instances of a host slow down which others, predicted and measured.

    Measured by the run queue where the agent watches it (cotenant-profiler run --run-queue), else by correlation of
    windows: the instance waits more while a certain other one runs.
    """
    with asked_cloud(server, token_file, database) as cloud:
        name = cloud.id_of("hosts", host)
        shown = cloud.ask(
            HostSlowing,
            lambda advisor: HostSlowing.of(
                advisor.telemetry.slowing(name, since=since), advisor.cloud.host(name).slowing
            ),
            *("hosts", name, "slowing"),
            since=since,
        )
    if as_json:
        print_json(shown)
        return
    if shown.pairs:
        print_table(
            ("instance", "loses to", "predicted", "measured", "by"),
            [_pair_cells(pair) for pair in shown.pairs],
            right=(2, 3),
        )
    else:
        say("No noticeable slowdown is predicted or measured.")
    if shown.elsewhere:
        say("Another store has the samples (COTENANT_PROMETHEUS_URL), so nothing measured is shown.")
    elif not shown.watched:
        say(f"No run queue is watched; correlations had {shown.windows} windows of five minutes.")


def _pair_cells(pair: SlowingPair) -> list[str]:
    by = "" if pair.source is None else pair.source
    return [pair.victim, pair.neighbour, _pair_figure(pair.predicted), _pair_figure(pair.measured), by]


def _pair_figure(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.2f}"


# `cotenant score`: how VMs fare on one scale from 0 to 100, by host and in the whole cloud, now and over time.

MOST_SHOWN = 20  # rows of a table; --json has more
_HEADS = ("VMs", "mean", "lowest", *SCORE_BUCKETS)


def score(
    host: Annotated[str | None, typer.Argument(help="A host, by id or name; without one the whole cloud.")] = None,
    vm: Annotated[str | None, typer.Option(help="A VM, by id or name, in place of a host.")] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="How far back: 90m, 24h, 7d.")] = "24h",
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Show the scores of VMs, from 0 to 100 (uncontended).

    The score is 100 x CPU delivered x what devices leave x the part of the time without stalls for memory.
    """
    if vm is not None:
        _score_vm(vm, host, since, database, server, token_file, as_json=as_json)
        return
    found = _ask(host, since, database, server, token_file)
    if as_json:
        print_json(found)
    elif not _all(found).instances:
        say("No VM runs" + (f" on {host}." if host else "."))
    elif isinstance(found, HostScoresOut):
        print_table(("", *_HEADS), [(found.host, *_cells(found))], right=range(1, len(_HEADS) + 1))
        _say_sources(found)
        _print_vms(found.vms)
        _say_lowest(found.history)
    else:
        rows = [("cloud", *_cells(found.cloud)), *((of.host, *_cells(of)) for of in found.hosts[:MOST_SHOWN])]
        print_table(("", *_HEADS), rows, right=range(1, len(_HEADS) + 1))
        _say_sources(found.cloud)
        _print_vms(found.lowest)
        _say_lowest(found.history)


def _score_vm(
    vm: str,
    host: str | None,
    since: str,
    database: Database,
    server: ServerOrDatabase,
    token_file: TokenFile,
    *,
    as_json: bool,
) -> None:
    if host is not None:
        raise InvalidInput("name a host or --vm, not both", field="vm")
    found = _ask_vm(vm, since, database, server, token_file)
    if as_json:
        print_json(found)
        return
    if found.now is None:
        say(f"{found.instance} does not run.")
    else:
        _print_vms([found.now])
    if found.history:
        lowest = min(found.history, key=lambda point: point.score)
        mean = sum(point.score for point in found.history) / len(found.history)
        measured = sum(point.source == "measured" for point in found.history)
        say(
            f"Mean of {len(found.history)} windows {mean:.0f}, CPU delivered measured in {measured}; the lowest score "
            f"was {_figure(lowest.score)}, at {lowest.time:%Y-%m-%d %H:%M} UTC."
        )


def _ask_vm(vm: str, since: str, database: Database, server: ServerOrDatabase, token_file: TokenFile) -> VmScoresOut:
    with asked_cloud(server, token_file, database) as cloud:
        name = cloud.id_of("instances", vm)
        return cloud.ask(
            VmScoresOut,
            lambda advisor: VmScoresOut.asked(advisor.cloud, name, since),
            *("instances", name, "scores"),
            since=since,
        )


def _ask(
    host: str | None, since: str, database: Database, server: ServerOrDatabase, token_file: TokenFile
) -> ScoresOut | HostScoresOut:
    with asked_cloud(server, token_file, database) as cloud:
        if host is None:
            return cloud.ask(ScoresOut, lambda advisor: ScoresOut.asked(advisor.cloud, since), "scores", since=since)
        name = cloud.id_of("hosts", host)
        return cloud.ask(
            HostScoresOut,
            lambda advisor: HostScoresOut.asked(advisor.cloud, name, since),
            *("hosts", name, "scores"),
            since=since,
        )


def _all(found: ScoresOut | HostScoresOut) -> ScoreSummary:
    return found if isinstance(found, HostScoresOut) else found.cloud


def _cells(of: ScoreSummary) -> tuple[str, ...]:
    return (str(of.instances), _figure(of.mean), _figure(of.lowest), *(str(of.buckets[name]) for name in SCORE_BUCKETS))


def _print_vms(vms: Sequence[VmScore]) -> None:
    if not vms:
        say("No VM is below 60.")
        return
    print_table(
        ("VM", "host", "score", "by", "CPU", "devices", "memory"),
        [
            (
                one.instance,
                one.host,
                _figure(one.score),
                one.source,
                _part(one.cpu),
                _part(one.devices),
                _part(one.memory),
            )
            for one in vms[:MOST_SHOWN]
        ],
        right=(2, 4, 5, 6),
    )


def _say_sources(of: ScoreSummary) -> None:
    say(f"CPU delivered was measured for {of.measured} of {of.instances} VMs; for the others it is predicted.")


def _say_lowest(history: Sequence[ScorePoint]) -> None:
    known = [point for point in history if point.mean is not None]
    if known:
        worst = min(known, key=lambda point: point.mean or 0.0)
        say(f"The lowest mean of {len(known)} windows was {_figure(worst.mean)}, at {worst.time:%Y-%m-%d %H:%M} UTC.")


def _figure(score: float | None) -> str:
    return "" if score is None else f"{round(score, 1):.0f}"  # of tenths, which a service gives


def _part(part: float | None) -> str:
    return "" if part is None else f"{part:.2f}"


# `cotenant worth`: what the advice of a week was worth, as sentences, JSON or a report.

_WORTH_COLUMNS = (
    "asked", "instance", "went to", "advised", "predicted", "measured", "windows", "neighbours", "where most is free",
)  # fmt: skip


def worth(
    since: Annotated[str, typer.Option(metavar="TIME", help="How far back: 24h, 7d, 30d.")] = "7d",
    report: ReportOut = None,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Show the effect of the advice: followed or not, predicted and measured, compared with similar instances.

    Of instances that came to their hosts in this time, in windows that agents measured. Where too few are alike it says
    so in place of a figure.
    """
    if report is not None:
        offline.check_report(report)
    with asked_cloud(server, token_file, database) as cloud:
        advice = cloud.ask(AdviceWorth, lambda advisor: advisor.outcomes.worth(since=since), "worth", since=since)
    if report is not None:
        offline.write_worth_report(advice, report)
    if as_json:
        print_json(advice)
        return
    for sentence in advice.sentences:
        say(sentence)
    if advice.placements:
        say()
        print_table(_WORTH_COLUMNS, [_worth_cells(placement) for placement in advice.placements], right=(4, 5, 6, 7, 8))
    if report is not None:
        say(f"Report written to {report}.")


def _worth_cells(placement: PlacementWorth) -> list[str]:
    band = placement.band
    free = next((other for other in placement.alternatives if other.why == "most_free"), None)
    return [
        f"{placement.asked_at:%Y-%m-%d %H:%M}",
        placement.instance,
        placement.host,
        placement.advised or "nowhere",
        "" if band is None else f"{band.expected:.2f} ({band.lower:.2f}-{band.upper:.2f})",
        _observed(placement.new_vm),
        "0" if placement.new_vm is None else str(placement.new_vm.windows),
        _observed(placement.residents),
        "" if free is None else f"{free.share:.2f} on {free.host}",
    ]


def _observed(outcome: PredictedAndMeasured | None) -> str:
    return "" if outcome is None else f"{outcome.observed:.2f}"


# `cotenant doctor`: what is wrong with the cloud and the service now, in sentences.


def doctor(
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """List problems: hosts without measurements, instances with little CPU delivered, anomalies.

    Also hosts whose own work takes CPUs from instances, sources that disagree, and a broken model. Exit code 1 where
    anything is.
    """
    with asked_cloud(server, token_file, database) as cloud:
        found = cloud.ask(Checkup, lambda advisor: advisor.cloud.checkup(), "checkup")
    if as_json:
        print_json(found)
    else:
        for sentence in found.problems or (found.looked_at,):
            say(sentence)
    if found.problems:
        raise typer.Exit(FAILED)
