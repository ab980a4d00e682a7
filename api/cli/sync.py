"""`cotenant sync` and `history`: what other systems say of the cloud, and the demand that they have stored."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, cast

import typer

from advisor import offline, service
from advisor.domain import LEAST_PATIENCE, PATIENCE
from advisor.errors import AdvisorError, InvalidInput
from advisor.service import (
    Advisor,
    InventorySource,
    MonitoringHistory,
    Reading,
    SourceOptions,
    SyncDiff,
    WatchedSource,
    keeps_history,
    keeps_metrics,
)
from api.cli.lazy import FAILED, stop_event
from api.cli.options import AsJson, CaFile, CloudName, Database, DryRun, Fingerprint, settings
from api.cli.output import print_json, print_table, progress, say, waiting
from api.schemas.commands import HistoryOut, LoadedOut, PartOut, SyncOut
from profiler.demand import RESOURCES

MOST_SHOWN = 10  # sentences about what was not taken; --json has all


def sync(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SYSTEM|FILE",
            help="A system to read: kubernetes, libvirt, openstack, or one whose package is installed; or an inventory "
            "file (one that is named like a system: ./NAME).",
        ),
    ],
    merge: Annotated[
        bool, typer.Option("--merge", help="With a file: keep hosts and instances that it does not name.")
    ] = False,
    cloud: CloudName = None,
    uri: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URI",
            help="With libvirt: a host, such as qemu+ssh://root@kvm01/system; repeat it for each.",
            show_default="$LIBVIRT_DEFAULT_URI, else qemu:///system",
        ),
    ] = None,
    ca_file: CaFile = None,
    fingerprint: Fingerprint = None,
    dry_run: DryRun = False,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Repeat at this interval, such as 30s, until SIGTERM.", show_default="once"),
    ] = None,
    whole_every: Annotated[
        int, typer.Option(min=1, help="With --every: every Nth read takes everything, the others only what changed.")
    ] = 10,
    watch: Annotated[
        bool, typer.Option("--watch", help="With kubernetes: follow every change at once, until SIGTERM.")
    ] = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Update the inventory in the database from a file or another system.

    Of a file: hosts and instances that it does not name go away, unless --merge is given; a malformed one refuses the
    file, or with --merge is left out with its line and the reason. Of a system: only what came from it can go away,
    what it does not tell stays as it is, and so does what the account may not see. Exit code 1 when something could
    not be read.
    """
    pause_s = service.every_s(every) if every is not None else None
    if watch and (every is not None or dry_run or not service.is_watched(source)):
        message = "--watch goes with a system that reports changes, such as kubernetes, not with --every and --dry-run"
        raise InvalidInput(message, field="watch")
    if source in service.sources():
        if merge:
            raise InvalidInput("--merge goes with a file; what a system does not report is always kept", field="merge")
        options = service.SourceOptions(cloud, tuple(uri or ()), ca_file, fingerprint)
        opened = service.open_source(source, options=options, whole_every=whole_every)
        with Advisor(settings(database=database)) as advisor:
            if watch:
                complete = _watch(advisor, cast(WatchedSource, opened), as_json=as_json)
            else:
                complete = _follow(advisor, opened, pause_s, dry_run=dry_run, as_json=as_json)
        if not complete:
            raise typer.Exit(FAILED)
    elif any(given is not None for given in (cloud, uri, ca_file, fingerprint, every)):
        message = "--cloud, --uri, --ca-file, --fingerprint and --every go with a system, not with a file"
        raise InvalidInput(message, field="source")
    else:
        if not Path(source).exists():
            service.check_installed(source)
        complete = _load(Path(source), database, merge=merge, dry_run=dry_run, as_json=as_json)
        if not complete:
            raise typer.Exit(FAILED)


def _load(file: Path, database: str | None, *, merge: bool, dry_run: bool, as_json: bool) -> bool:
    """Bring in a file; whether all of it could be read."""
    left_out, malformed = list[str](), list[str]()
    with waiting(f"Reading {file}"):  # to replace by a file that cannot all be read would delete what stands there
        cloud = offline.load_inventory(file, left_out, malformed if merge else None)
    left_out += malformed
    counts = {"hosts": len(cloud.hosts), "instances": len(cloud.instances), "workloads": len(cloud.workloads)}
    loaded = ", ".join(f"{number} {what}" for what, number in counts.items())
    problems = {"left_out": left_out} if left_out else {}
    if dry_run:
        if as_json:
            print_json(LoadedOut(dry_run=True, **counts, **problems))
        else:
            say(f"The file holds {loaded}; nothing was written.")
            _tell_left_out(left_out)
        return not malformed
    with waiting("Writing to the database"), Advisor(settings(database=database)) as advisor:
        mode = "merge" if merge else "replace"
        generation = advisor.inventory.put(cloud, mode=mode, generation=None, notes=left_out)
    problems = {"left_out": left_out} if left_out else {}
    if as_json:
        print_json(LoadedOut(generation=generation, **counts, **problems))
    else:
        say(f"Loaded {loaded}; the inventory is at generation {generation}.")
        _tell_left_out(left_out)
    return not malformed


def _follow(advisor: Advisor, source: InventorySource, pause_s: float | None, *, dry_run: bool, as_json: bool) -> bool:
    """Read once, or until SIGINT or SIGTERM; whether the last read was complete."""
    stop = threading.Event() if pause_s is None else stop_event()
    again = timedelta(0) if pause_s is None else max(PATIENCE * timedelta(seconds=pause_s), LEAST_PATIENCE)
    while True:
        with waiting("Reading the cloud"):
            reading = source.read()
        try:
            with waiting("Comparing with the database"):
                news = advisor.inventory.follow(reading, dry_run=dry_run, again=again)
        except AdvisorError as error:
            if pause_s is None:
                raise
            typer.echo(f"cotenant: {error.message}", err=True)  # the database may be back at the next read
        else:
            _tell(reading, news, dry_run=dry_run, as_json=as_json, line=pause_s is not None)
        if pause_s is None or stop.wait(pause_s):
            return reading.complete


def _watch(advisor: Advisor, source: WatchedSource, *, as_json: bool) -> bool:
    """Follow what changes until SIGINT or SIGTERM; whether everything could be read last."""
    stop = stop_event()
    complete, trouble = True, ""
    for reading in source.watch(stop):
        complete, former_trouble = reading.complete, trouble
        try:
            news = advisor.inventory.follow(reading, again=LEAST_PATIENCE)
            trouble = "; ".join(f"{part.name} {part.state}: {part.reason}" for part in reading.parts if part.reason)
        except AdvisorError as error:
            source.again()  # the database may be back then
            trouble = error.message
            if trouble != former_trouble:
                typer.echo(f"cotenant: {trouble}", err=True)
            stop.wait(1.0)
            continue
        if not news.is_nothing or news.left_out or trouble != former_trouble:
            _tell(reading, news, dry_run=False, as_json=as_json, line=True)
    return complete


def _tell(reading: Reading, news: SyncDiff, *, dry_run: bool, as_json: bool, line: bool) -> None:
    if as_json:
        print_json(_described(reading, news, dry_run=dry_run), in_one_line=line)
        return
    trouble = [part for part in reading.parts if part.state != "read"]
    if line:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        say(f"{now} {_sentence(reading, news, dry_run=dry_run)}")
        for part in trouble:
            say(f"{part.name} {part.state}: {part.reason}")
    else:
        print_table(
            ("part", "state", "rows", "reason"),
            [(part.name, part.state, part.rows if part.state == "read" else "", part.reason) for part in reading.parts],
            right=(2,),
        )
        say()
        say(_sentence(reading, news, dry_run=dry_run))
    _tell_left_out(news.left_out)
    if len(reading.parts) > len(trouble) > 0 and not line:
        say("What could not be read stays as it is.")


def _tell_left_out(left_out: Sequence[str]) -> None:
    for sentence in left_out[:MOST_SHOWN]:
        say(f"Not taken: {sentence}.")
    if len(left_out) > MOST_SHOWN:
        say(f"And {len(left_out) - MOST_SHOWN} more that were not taken (--json shows all).")


def _sentence(reading: Reading, news: SyncDiff, *, dry_run: bool) -> str:
    if not any(part.state == "read" for part in reading.parts):
        return f"Nothing could be read of {reading.source}, so nothing was changed."
    verb = "Would put" if dry_run else "Put"
    return (
        f"{verb} {len(news.hosts)} hosts and {len(news.instances)} instances that are new or changed, of "
        f"{len(news.reported)} hosts; {len(news.gone_hosts)} hosts and {len(news.gone_instances)} instances are gone."
    )


def _described(reading: Reading, news: SyncDiff, *, dry_run: bool) -> SyncOut:
    return SyncOut(
        source=reading.source,
        dry_run=dry_run,
        complete=reading.complete,
        parts=[PartOut.like(part) for part in reading.parts],
        reported_hosts=len(news.reported),
        hosts=[host.id for host in news.hosts],
        instances=[instance.id for instance in news.instances],
        gone_hosts=list(news.gone_hosts),
        gone_instances=list(news.gone_instances),
        left_out=list(news.left_out),
    )


# The command `history`: what another system has watched for weeks becomes the demand over time of instances.


def history(
    source: Annotated[
        str,
        typer.Argument(
            metavar="gnocchi|SYSTEM|PRESET|FILE.toml",
            help="What has watched the instances: OpenStack's Gnocchi, a system whose package reads the history that "
            "it keeps, or a Prometheus by what it scrapes: cadvisor, ceilometer, kubevirt, libvirt-exporter, "
            "node-exporter, pve-exporter, or a file that says what yours calls things. With a preset, --cloud asks the "
            "Prometheus behind that OpenStack's Aetos.",
        ),
    ],
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With a preset: the Prometheus-compatible store to ask; its secret is in the file that "
            "COTENANT_PROMETHEUS_AUTHORIZATION_FILE names.",
            show_default="COTENANT_PROMETHEUS_URL",
        ),
    ] = None,
    cloud: CloudName = None,
    ca_file: CaFile = None,
    fingerprint: Fingerprint = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="How far back: 24h, 14d, 30d.")] = "14d",
    dry_run: DryRun = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Learn the demand of instances from the history that Gnocchi, Prometheus or the system itself has stored.

    Series become demand over time, in windows of five minutes: CPUs (with waiting where it is known), network, disk.
    What the agent measures itself, and what was given by hand, counts for more. Run it each night: again is harmless.
    Exit code 1 when something of a guest could not be read.
    """
    if prometheus is not None and (keeps_history(source) or keeps_metrics(source)):
        more = "ceilometer and pve-exporter are read from a Prometheus"
        raise InvalidInput(f"--prometheus goes with a preset; {source} is asked itself ({more})", field="prometheus")
    if prometheus is not None and cloud is not None:
        raise InvalidInput("give --prometheus, or --cloud for the Prometheus behind its Aetos", field="cloud")
    is_asked_itself = any(option is not None for option in (cloud, ca_file, fingerprint))
    options = SourceOptions(cloud, (), ca_file, fingerprint) if is_asked_itself else None
    chosen = settings(database=database, **({} if prometheus is None else {"prometheus_url": prometheus}))
    with Advisor(chosen) as advisor, progress() as advance:
        learned, changed = advisor.telemetry.take_history(
            source,
            since=since,
            options=options,
            dry_run=dry_run,
            progress=lambda done, of: advance("Reading series", done / of if of else 1.0),
        )
    if as_json:
        print_json(
            HistoryOut(
                dry_run=dry_run,
                instances={name: sorted(demands) for name, demands in learned.demands.items()},
                changed=list(changed),
                unknown=list(learned.unknown),
                silent=list(learned.silent),
                failed=list(learned.failed),
            )
        )
    else:
        _say_history(learned, changed, dry_run=dry_run)
    if learned.failed:
        raise typer.Exit(FAILED)


def _say_history(learned: MonitoringHistory, changed: Sequence[str], *, dry_run: bool) -> None:
    rows = [
        (resource, sum(resource in demands for demands in learned.demands.values()))
        for resource in RESOURCES
        if any(resource in demands for demands in learned.demands.values())
    ]
    if rows:
        print_table(("demand for", "instances"), rows, right=(1,))
        say()
    verb = "would change" if dry_run else "changed"
    say(f"{len(learned.demands)} instances were watched for an hour or more; the demand of {len(changed)} {verb}.")
    if learned.silent:
        say(f"No series for: {', '.join(learned.silent)}.")
    if learned.unknown:
        more = f" and {len(learned.unknown) - MOST_SHOWN} more" if len(learned.unknown) > MOST_SHOWN else ""
        say(f"No instance has the name {', '.join(learned.unknown[:MOST_SHOWN])}{more}.")
    for sentence in learned.failed[:MOST_SHOWN]:
        say(f"Not read: {sentence}.")
    if len(learned.failed) > MOST_SHOWN:
        say(f"And {len(learned.failed) - MOST_SHOWN} more that were not read (--json shows all).")
