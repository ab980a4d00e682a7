"""`cotenant-profiler lab`: run campaigns of measurements, show what they found, clean up after killed ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from profiler.cli.output import DONE, FAILED, WRONG_USAGE, console, fail, print_json

# The lab's modules are imported when they are asked for: the agent's host needs neither PyYAML nor them.


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the commands and their options."""
    lab = commands.add_parser("lab", help="measure workloads alone and together").add_subparsers(
        title="lab commands", required=True, metavar="COMMAND"
    )
    run = lab.add_parser("run", help="carry out a campaign; finished runs are never measured again")
    run.add_argument("campaign", type=Path, metavar="CAMPAIGN.yaml")
    run.add_argument("--out", type=Path, metavar="DIR", help="dataset directory (default: ./ and the campaign's name)")
    again = run.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="go on where an earlier run ended (this is the default)")
    again.add_argument("--fresh", action="store_true", help="start anew and keep the old journal under another name")
    again.add_argument(
        "--again-disturbed", action="store_true", help="measure the runs once more that something disturbed"
    )
    run.set_defaults(command=_whole(_run))
    show = lab.add_parser("show", help="who slows whom in a dataset directory")
    show.add_argument("directory", type=Path, metavar="DIR")
    show.set_defaults(command=_whole(_show))
    clean = lab.add_parser("clean", help="remove what killed lab runs left behind")
    clean.set_defaults(command=_whole(_clean))
    for command in (run, clean):
        command.add_argument("--state", type=Path, metavar="DIR", help="list of made objects (/run/cotenant-lab)")
    for command in (run, show, clean):
        command.add_argument("--json", action="store_true", help="machine-readable output")


def _whole(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Say in one sentence when the lab or PyYAML is not here, as in the single file that hypervisors get."""

    def run(options: argparse.Namespace) -> int:
        try:
            return command(options)
        except ModuleNotFoundError as error:
            if error.name not in ("profiler.lab", "yaml"):
                raise
            return fail("lab commands need the full installation of Cotenant, of which this is a part", FAILED)

    return run


def _run(options: argparse.Namespace) -> int:
    from profiler.lab.campaign import read_campaign
    from profiler.lab.errors import CampaignError, LabError
    from profiler.lab.registry import DEFAULT_STATE
    from profiler.lab.runner import run_campaign

    try:
        campaign = read_campaign(options.campaign)
        directory = options.out or Path(campaign.name)
        summary = run_campaign(
            campaign, directory, fresh=options.fresh, again=options.again_disturbed,
            state=options.state or DEFAULT_STATE, stream=sys.stderr, quiet=options.json,
        )  # fmt: skip
    except CampaignError as error:
        return fail(str(error), WRONG_USAGE)
    except LabError as error:
        return fail(str(error), FAILED)
    if options.json:
        print_json({**asdict(summary), "directory": str(summary.directory)})
    if summary.interrupted:
        again = f"cotenant-profiler lab run {options.campaign} --out {directory}"
        return fail(
            f"stopped; {summary.finished} of {summary.total} runs are finished and kept, go on with: {again}", FAILED
        )
    if not options.json:
        print(
            f"{summary.directory}: {summary.finished} runs in {summary.rounds} rounds, {summary.disturbed} of them"
            f" disturbed from outside; look at them with: cotenant-profiler lab show {directory}"
        )
    return DONE


def _show(options: argparse.Namespace) -> int:
    from profiler.lab.errors import LabError
    from profiler.lab.report import draw
    from profiler.lab.show import show

    try:
        shown = show(options.directory)
    except LabError as error:
        return fail(str(error), WRONG_USAGE if options.directory.is_dir() else FAILED)
    if options.json:
        print_json(shown.document())
    else:
        draw(shown, console())
    return DONE


def _clean(options: argparse.Namespace) -> int:
    from profiler.lab.errors import LabError
    from profiler.lab.registry import DEFAULT_STATE, clean

    try:
        removed = clean(options.state or DEFAULT_STATE)
    except PermissionError:
        return fail("the lab's objects can only be removed by root: run it with sudo", FAILED)
    except (LabError, OSError) as error:
        return fail(str(error), FAILED)
    if options.json:
        print_json({"removed": removed})
    else:
        print("\n".join(f"removed {name}" for name in removed) or "nothing was left behind")
    return DONE
