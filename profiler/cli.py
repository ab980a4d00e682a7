"""The command line of the host side, `cotenant-profiler`: arguments in, tables or JSON out; measures through others."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from profiler.backends import Backend, BackendError, LxcBackend, RecordedBackend
from profiler.backends.source import LiveSource, RecordingSource
from profiler.checks import Check, check_host
from profiler.collectors import Collected, collect, unit_of
from profiler.metrics import EIGHT
from profiler.observed import IsolationSettings

DONE, FAILED, WRONG_USAGE = 0, 1, 2
_EIGHT_OF_INSTANCE = tuple(metric.name for metric in EIGHT if "instance" in metric.scopes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors are one sentence on standard error."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return int(options.command(options))
    except KeyboardInterrupt:
        return _fail("stopped", FAILED)
    except BackendError as error:
        return _fail(str(error), FAILED)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        sys.stderr.close()
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cotenant-profiler", description="Reads and measures what runs on this host; root only for real probes."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    check = commands.add_parser("check", help="what makes this host's numbers lie")
    check.set_defaults(command=_check)
    once = commands.add_parser("once", help="one reading of every instance's metrics")
    once.add_argument("--interval", type=_seconds, default=1.0, metavar="S", help="seconds between two readings (1)")
    once.add_argument("--replay", type=Path, metavar="FILE", help="replay a recording instead of reading this host")
    once.add_argument("--record", type=Path, metavar="FILE", help="also keep everything that was read in FILE")
    once.set_defaults(command=_once)

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
    run.set_defaults(command=_lab_run)
    show = lab.add_parser("show", help="who slows whom in a dataset directory")
    show.add_argument("directory", type=Path, metavar="DIR")
    show.set_defaults(command=_lab_show)
    clean = lab.add_parser("clean", help="remove what killed lab runs left behind")
    clean.set_defaults(command=_lab_clean)
    for command in (run, clean):
        command.add_argument("--state", type=Path, metavar="DIR", help="list of made objects (/run/cotenant-lab)")
    for command in (check, once, run, show, clean):
        command.add_argument("--json", action="store_true", help="machine-readable output")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.01 <= value <= 300:  # longer gaps are refused as stale by the collectors
        raise argparse.ArgumentTypeError(f"{text} is not between 0.01 and 300 seconds")
    return value


def _fail(message: str, code: int) -> int:
    print(f"cotenant-profiler: {message}", file=sys.stderr)
    return code


def _print_json(document: Any) -> None:
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    print()


def _console() -> Console:
    # Piped output is not cut at 80 columns: a table in a file must be whole.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def _check(options: argparse.Namespace) -> int:
    checks = check_host()
    if options.json:
        _print_json({"checks": [asdict(check) for check in checks]})
    else:
        _console().print(_check_table(checks))
    return DONE


def _check_table(checks: list[Check]) -> Table:
    table = Table()
    for column in ("check", "state", "found", "distorts", "fix"):
        table.add_column(column, overflow="fold")
    for check in checks:
        table.add_row(check.name, check.state, check.value, check.distorts, check.fix)
    return table


def _once(options: argparse.Namespace) -> int:
    recording = RecordingSource(LiveSource()) if options.record else None
    backend: Backend = RecordedBackend(options.replay) if options.replay else LxcBackend(recording)
    first = backend.read_counters()
    held = _isolation(backend)
    if not options.replay:
        time.sleep(options.interval)
    if recording:
        recording.cut()
    second = backend.read_counters()
    if recording:
        try:
            recording.save(options.record, backend=backend.name, host=backend.host, note="cotenant-profiler once")
        except OSError as error:
            return _fail(f"{options.record} cannot be written: {error.strerror}", FAILED)
    collected = collect(first, second)
    if options.json:
        _print_json(_once_document(backend, second.time_s, held, collected))
        return DONE
    _once_tables(collected, _console())
    if not second.instances:
        print(f"no containers run on {backend.host}", file=sys.stderr)
    return DONE


def _isolation(backend: Backend) -> dict[str, IsolationSettings]:
    held: dict[str, IsolationSettings] = {}
    for instance in backend.list_instances():
        with contextlib.suppress(BackendError):  # it ended since it was listed
            held[instance.id] = backend.read_isolation(instance)
    return held


def _once_document(
    backend: Backend, time_s: float, held: Mapping[str, IsolationSettings], collected: Collected
) -> dict[str, Any]:
    instances = [
        {**asdict(settings), "id": name, "pinning": None if settings.pinning is None else str(settings.pinning)}
        for name, settings in held.items()
    ]
    samples = [
        {"instance": s.instance, "scope": s.scope, "metric": s.metric, "value": s.value, "unit": unit_of(s.metric)}
        for s in collected.samples
    ]
    return {
        "host": backend.host,
        "time_s": time_s,
        "interval_s": collected.seconds,
        "instances": instances,
        "samples": samples,
        "absent": [asdict(absence) for absence in collected.absences],
        "dropped": [asdict(drop) for drop in collected.drops],
    }


def _once_tables(collected: Collected, console: Console) -> None:
    values = {(s.instance, s.scope, s.metric): s.value for s in collected.samples}
    instances = sorted({s.instance for s in collected.samples if s.instance is not None})
    table = Table(title=f"{collected.seconds:.2f} s")
    table.add_column("")
    for metric in _EIGHT_OF_INSTANCE:
        table.add_column(f"{metric}\n{unit_of(metric)}", justify="right")
    for name in instances:
        table.add_row(name, *(_shown(values.get((name, "instance", metric))) for metric in _EIGHT_OF_INSTANCE))
    driver = [_shown(values.get((None, "driver_domain", metric))) for metric in _EIGHT_OF_INSTANCE]
    table.add_row("(driver domain)", *driver)
    console.print(table)
    for metric in ("event", "switch"):
        console.print(f"host {metric}: {_shown(values.get((None, 'host', metric)))} {unit_of(metric)}", markup=False)
    for absence in collected.absences:
        console.print(f"absent: {absence.metric} of {absence.instance or 'the host'}: {absence.reason}", markup=False)
    for drop in collected.drops:
        console.print(f"dropped: {drop.instance or 'the whole reading'}: {drop.reason}", markup=False)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"


# The lab's modules are imported when they are asked for: the agent's host needs neither PyYAML nor them.


def _lab_run(options: argparse.Namespace) -> int:
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
        return _fail(str(error), WRONG_USAGE)
    except LabError as error:
        return _fail(str(error), FAILED)
    if options.json:
        _print_json({**asdict(summary), "directory": str(summary.directory)})
    if summary.interrupted:
        again = f"cotenant-profiler lab run {options.campaign} --out {directory}"
        return _fail(
            f"stopped; {summary.finished} of {summary.total} runs are finished and kept, go on with: {again}", FAILED
        )
    if not options.json:
        print(
            f"{summary.directory}: {summary.finished} runs in {summary.rounds} rounds, {summary.disturbed} of them"
            f" disturbed from outside; look at them with: cotenant-profiler lab show {directory}"
        )
    return DONE


def _lab_show(options: argparse.Namespace) -> int:
    from profiler.lab.errors import LabError
    from profiler.lab.report import draw
    from profiler.lab.show import show

    try:
        shown = show(options.directory)
    except LabError as error:
        return _fail(str(error), WRONG_USAGE if options.directory.is_dir() else FAILED)
    if options.json:
        _print_json(shown.document())
    else:
        draw(shown, _console())
    return DONE


def _lab_clean(options: argparse.Namespace) -> int:
    from profiler.lab.errors import LabError
    from profiler.lab.registry import DEFAULT_STATE, clean

    try:
        removed = clean(options.state or DEFAULT_STATE)
    except PermissionError:
        return _fail("the lab's objects can only be removed by root: run it with sudo", FAILED)
    except (LabError, OSError) as error:
        return _fail(str(error), FAILED)
    if options.json:
        _print_json({"removed": removed})
    else:
        print("\n".join(f"removed {name}" for name in removed) or "nothing was left behind")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
