"""`cotenant score`: how VMs fare on one scale from 0 to 100, by host and in the whole cloud, now and over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from advisor.domain import SCORE_BUCKETS, VmScore
from advisor.errors import InvalidInput
from advisor.service import Advisor
from api.cli.asking import ServerOrDatabase, TokenFile, service_or_database
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, say
from api.schemas.scores import HostScoresOut, ScorePointOut, ScoresIn, ScoresOut, VmScoresOut

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
    """Say how VMs fare on one scale: 100 = uncontended, 0 = nothing is left.

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
    service = service_or_database(server, token_file, database)
    if service is not None:
        with service.read_as("answer"):
            name = service.named("instances", vm)["id"]
            return VmScoresOut.model_validate(service.get("instances", name, "scores", since=since))
    with Advisor(settings(database=database)) as advisor:
        name, now = advisor.inventory.find_instance(vm).id, advisor.cloud.scores()
        history = list(advisor.cloud.vm_score_history(name, since=since))
        return VmScoresOut(instance=name, time=now.time, now=now.instances.get(name), history=history)


def _ask(
    host: str | None, since: str, database: Database, server: ServerOrDatabase, token_file: TokenFile
) -> ScoresOut | HostScoresOut:
    service = service_or_database(server, token_file, database)
    if service is not None:
        with service.read_as("answer"):
            if host is None:
                return ScoresOut.model_validate(service.get("scores", since=since))
            name = service.named("hosts", host)["id"]
            return HostScoresOut.model_validate(service.get("hosts", name, "scores", since=since))
    with Advisor(settings(database=database)) as advisor:
        now = advisor.cloud.scores()
        if host is None:
            return ScoresOut.of(now, advisor.cloud.score_history(since=since))
        name = advisor.inventory.find_host(host).id
        history = advisor.cloud.score_history(name, since=since)
        return HostScoresOut.of_host(now, name, history, advisor.cloud.memory().get(name))


def _all(found: ScoresOut | HostScoresOut) -> ScoresIn:
    return found if isinstance(found, HostScoresOut) else found.cloud


def _cells(of: ScoresIn) -> tuple[str, ...]:
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


def _say_sources(of: ScoresIn) -> None:
    say(f"CPU delivered was measured for {of.measured} of {of.instances} VMs; for the others it is predicted.")


def _say_lowest(history: Sequence[ScorePointOut]) -> None:
    known = [point for point in history if point.mean is not None]
    if known:
        worst = min(known, key=lambda point: point.mean or 0.0)
        say(f"The lowest mean of {len(known)} windows was {_figure(worst.mean)}, at {worst.time:%Y-%m-%d %H:%M} UTC.")


def _figure(score: float | None) -> str:
    return "" if score is None else f"{score:.0f}"


def _part(part: float | None) -> str:
    return "" if part is None else f"{part:.2f}"
