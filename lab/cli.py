"""`cotenant-lab`: runs measurement campaigns, shows their results, and cleans up after killed ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli.shared_options import DONE, FAILED, WRONG_USAGE, console, print_json, run_command
from profiler.cli.shared_options import fail as fail_as

if TYPE_CHECKING:
    from lab.campaign import Campaign
    from lab.runner import Summary

# A command imports what it needs when it is called, so that --help answers at once.


def fail(message: str, code: int) -> int:
    """Say one sentence on standard error and return `code`."""
    return fail_as(message, code, "cotenant-lab")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors are one sentence on standard error."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cotenant-lab", description="Measures workloads alone and together on this host; `run` needs root."
    )
    lab = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    run = lab.add_parser("run", help="measure a campaign; finished runs are not measured again")
    run.add_argument("campaign", type=Path, metavar="CAMPAIGN.yaml")
    run.add_argument(
        "--dataset", type=Path, metavar="DIR", help="dataset directory (default: ./ and the campaign's name)"
    )
    again = run.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="continue where an earlier run ended (the default)")
    again.add_argument("--fresh", action="store_true", help="start anew; the old journal is kept under another name")
    again.add_argument("--again-disturbed", action="store_true", help="measure disturbed runs again")
    run.add_argument("--rounds", type=_count, metavar="N", help="the minimum of rounds, instead of the file's")
    run.add_argument(
        "--most-minutes", type=_minutes, metavar="M",
        help="start no run after this many minutes of measuring, counted over all calls",
    )  # fmt: skip
    run.add_argument(
        "--platform", type=_platform, metavar="NAME",
        help="call this host NAME instead of the file's platform, and the dataset by the campaign and NAME",
    )  # fmt: skip
    run.add_argument("--dry-run", action="store_true", help="print what would be measured and how long it would take")
    run.set_defaults(command=_run)
    show = lab.add_parser("show", help="show which workload slows which in a dataset directory")
    show.add_argument("directory", type=Path, metavar="DIR")
    show.add_argument("--report", type=Path, metavar="FILE.html", help="write an HTML page with charts")
    show.add_argument("--workloads", metavar="A,B", help="only groups of these workloads")
    show.add_argument("--pinning", metavar="NAME", help="only this pinning form")
    show.add_argument("--all", action="store_true", help="print long lists in full")
    show.set_defaults(command=_show)
    clean = lab.add_parser("clean", help="remove objects that killed lab runs left behind")
    clean.set_defaults(command=_clean)
    for command in (run, clean):
        command.add_argument(
            "--state", type=Path, metavar="DIR", help="folder with lists of created objects (/run/cotenant-lab)"
        )
    for command in (run, show, clean):
        command.add_argument("--json", action="store_true", help="machine-readable output")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds from 1 to 10000")
    return int(text)


def _platform(text: str) -> str:
    from profiler.observed import check_id

    try:
        return check_id(text, "platform")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return minutes


def _run(options: argparse.Namespace) -> int:
    from lab.campaign import read_campaign
    from lab.errors import CampaignError, LabError
    from lab.resource_registry import DEFAULT_STATE
    from lab.runner import run_campaign

    try:
        campaign = read_campaign(options.campaign).measured_on(options.platform)
        campaign = campaign.repeated(options.rounds, options.most_minutes)
        if options.rounds is not None and campaign.temporal is not None:
            return fail(f"{options.campaign} has as many rounds as its time grid: leave out --rounds", WRONG_USAGE)
        directory = options.dataset or Path(campaign.name)
        if options.dry_run:
            return _estimate(campaign, directory, options)
        summary = run_campaign(
            campaign, directory, fresh=options.fresh, again=options.again_disturbed,
            state=options.state or DEFAULT_STATE, stream=sys.stderr, quiet=options.json,
        )  # fmt: skip
    except CampaignError as error:
        return fail(str(error), WRONG_USAGE)
    except LabError as error:
        return fail(str(error), FAILED)
    return _ended(summary, options)


def _estimate(campaign: Campaign, directory: Path, options: argparse.Namespace) -> int:
    from lab.dry_run import estimate_campaign
    from lab.journal import NAME, read_journal, without_disturbed
    from lab.preflight import refuse_impossible

    refuse_impossible(campaign)
    journal = None if options.fresh else read_journal(directory / NAME, campaign)
    records = [] if journal is None else journal.records
    estimate = estimate_campaign(campaign, without_disturbed(records) if options.again_disturbed else records)
    if options.json:
        print_json(asdict(estimate))
    else:
        print("\n".join(estimate.sentences()))
    return DONE


def _ended(summary: Summary, options: argparse.Namespace) -> int:
    if options.json:
        print_json({**asdict(summary), "directory": str(summary.directory), "interrupted": summary.interrupted})
    done = f"{summary.finished} of {summary.total} runs are finished and kept"
    if summary.interrupted:
        host = f" --platform {options.platform}" if options.platform else ""
        again = f"cotenant-lab run {options.campaign} --dataset {summary.directory}{host}"
        return fail(f"stopped; {done}, go on with: {again}", FAILED)
    if summary.failed:
        failed = "; ".join(summary.failed)
        return fail(f"{done}, these failed and are tried again by the same command: {failed}", FAILED)
    if options.json:
        return DONE
    if summary.ending == "out of time":
        print(f"the minutes are over; {done}, more minutes let the same command go on")
    if summary.skipped:
        print(f"{len(summary.skipped)} rounds were skipped because they would have been late")
    if summary.wide is not None:
        print(f"{summary.wide} groups are still less sure than asked for")
    print(
        f"{summary.directory}: {summary.finished} runs in {summary.rounds} rounds, {summary.disturbed} of them"
        f" disturbed from outside, {summary.unsteady} unsteady; look at them with: cotenant-lab show"
        f" {options.dataset or summary.directory}"
    )
    return DONE


def _show(options: argparse.Namespace) -> int:
    from lab.errors import LabError
    from lab.show import analyse
    from lab.show.terminal import draw
    from profiler.pictures import PictureError

    workloads = [name for name in (options.workloads or "").split(",") if name]
    try:
        shown = analyse(options.directory, workloads, options.pinning or "")
        if options.report is not None:
            from lab.show.page import write_page

            write_page(shown, options.report)
    except (LabError, PictureError) as error:
        return fail(str(error), WRONG_USAGE if options.directory.is_dir() else FAILED)
    if options.json:
        print_json(asdict(shown))
    elif options.report is not None:
        print(f"{options.report}: the report of {shown.runs} runs in {shown.repeats} rounds")
    else:
        draw(shown, console(), everything=options.all)
    return DONE


def _clean(options: argparse.Namespace) -> int:
    from lab.errors import LabError
    from lab.resource_registry import DEFAULT_STATE, clean

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


if __name__ == "__main__":
    sys.exit(main())
