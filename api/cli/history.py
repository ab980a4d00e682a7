"""The command `history`: what a monitoring system knows of instances becomes their demand over time."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor.errors import InvalidInput
from advisor.service import Advisor
from api.cli.options import AsJson, Database, settings
from api.cli.output import print_json, print_table, progress, say
from profiler.demand import RESOURCES

MOST_TOLD = 10  # names that are told; --json has all


def history(
    preset: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|FILE.toml",
            help="What watches the instances: cadvisor, ceilometer, kubevirt, libvirt-exporter, node-exporter, "
            "proxmox, or a file that says what yours calls things; or gnocchi, which is asked itself.",
        ),
    ],
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The Prometheus-compatible store to ask; its secret is in the file that "
            "COTENANT_PROMETHEUS_AUTHORIZATION_FILE names.",
            show_default="COTENANT_PROMETHEUS_URL",
        ),
    ] = None,
    cloud: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="An OpenStack cloud of clouds.yaml (envvars: OS_*), whose metric storage (Aetos), or Gnocchi, is "
            "asked with its account.",
        ),
    ] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="How far back: 24h, 14d, 30d.")] = "14d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Learn what instances do from the weeks that a Prometheus, or Gnocchi, has watched them.

    Series become demand over time, in windows of five minutes: CPUs (with waiting where it is told), network, disk.
    What the agent measures itself, and what was given by hand, counts for more. Again is harmless: run it each night.
    """
    if cloud is not None and prometheus is not None:
        raise InvalidInput("give --prometheus or --cloud, not both", field="cloud")
    chosen = settings(database=database, **({} if prometheus is None else {"prometheus_url": prometheus}))
    with Advisor(chosen) as advisor, progress() as advance:
        found, changed = advisor.telemetry.take_history(
            preset,
            since=since,
            cloud=cloud,
            dry_run=dry_run,
            progress=lambda done, of: advance("Reading series", done / of if of else 1.0),
        )
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "instances": {name: sorted(one) for name, one in found.demands.items()},
                "changed": list(changed),
                "unknown": list(found.unknown),
                "silent": list(found.silent),
            }
        )
        return
    rows = [
        (resource, sum(resource in one for one in found.demands.values()))
        for resource in RESOURCES
        if any(resource in one for one in found.demands.values())
    ]
    if rows:
        print_table(("demand for", "instances"), rows, right=(1,))
        say()
    verb = "would change" if dry_run else "changed"
    say(f"{len(found.demands)} instances were watched for an hour or more; the demand of {len(changed)} {verb}.")
    if found.silent:
        say(f"No series for: {', '.join(found.silent)}.")
    if found.unknown:
        more = f" and {len(found.unknown) - MOST_TOLD} more" if len(found.unknown) > MOST_TOLD else ""
        say(f"No instance has the name {', '.join(found.unknown[:MOST_TOLD])}{more}.")
