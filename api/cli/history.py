"""The command `history`: what another system has watched for weeks becomes the demand over time of instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from advisor.errors import InvalidInput
from advisor.service import Advisor, MonitoringHistory, SourceOptions, keeps_history
from api.cli.endings import FAILED
from api.cli.options import AsJson, CaFile, CloudName, Database, DryRun, Fingerprint, settings
from api.cli.output import print_json, print_table, progress, say
from api.schemas.commands import HistoryOut
from profiler.demand import RESOURCES

MOST_SHOWN = 10  # names and sentences that are reported; --json has all


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
    """Learn the demand of instances from the weeks that Gnocchi, a system itself, or a Prometheus has stored.

    Series become demand over time, in windows of five minutes: CPUs (with waiting where it is known), network, disk.
    What the agent measures itself, and what was given by hand, counts for more. Run it each night: again is harmless.
    Exit code 1 when something of a guest could not be read.
    """
    if prometheus is not None and (source == "gnocchi" or keeps_history(source)):
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
        _tell(learned, changed, dry_run=dry_run)
    if learned.failed:
        raise typer.Exit(FAILED)


def _tell(learned: MonitoringHistory, changed: Sequence[str], *, dry_run: bool) -> None:
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
