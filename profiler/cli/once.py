"""`cotenant-profiler once`: two readings of this host or of a recording, as a table or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.backends import Backend, BackendError, RecordedBackend
from profiler.backends.sources import LiveSource, RecordingSource
from profiler.cli.shared_options import (
    DONE,
    FAILED,
    WRONG_USAGE,
    add_choice,
    between,
    chosen_backend,
    console,
    fail,
    print_json,
)
from profiler.collectors import Collected, collect, unit_of
from profiler.metrics import EIGHT
from profiler.observed import IsolationSettings

if TYPE_CHECKING:
    from rich.console import Console

_EIGHT_OF_INSTANCE = tuple(metric.name for metric in EIGHT if "instance" in metric.scopes)
_OF_THIS_HOST = ("every", "backend", "host", "xen_trace", "record")  # options that mean nothing for a recording
_LONGEST_S = 300  # longer gaps are refused as stale by the collectors


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    once = commands.add_parser("once", help="print the metrics of every instance once")
    once.add_argument(
        "--every", type=between(0.01, _LONGEST_S, "seconds"), default=1.0, metavar="S",
        help="seconds between readings (1)",
    )  # fmt: skip
    add_choice(once)
    once.add_argument("--replay", type=Path, metavar="FILE", help="replay a recording instead of reading this host")
    once.add_argument("--record", type=Path, metavar="FILE", help="also record everything that was read to FILE")
    once.add_argument("--json", action="store_true", help="machine-readable output")
    once.set_defaults(command=_once, of_this_host={name: once.get_default(name) for name in _OF_THIS_HOST})


def _once(options: argparse.Namespace) -> int:
    changed = [name for name, default in options.of_this_host.items() if getattr(options, name) != default]
    if options.replay and changed:
        ignored = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
        return fail(f"--replay shows a recording and does not read this host: leave out {ignored}", WRONG_USAGE)
    recording = RecordingSource(LiveSource()) if options.record else None
    backend = RecordedBackend(options.replay) if options.replay else chosen_backend(options, recording)
    with contextlib.closing(backend):
        return _read_twice(options, backend, recording)


def _read_twice(options: argparse.Namespace, backend: Backend, recording: RecordingSource | None) -> int:
    first = backend.read_counters()
    settings = _isolation(backend)
    if not options.replay:
        time.sleep(options.every)
    if recording:
        recording.cut()
    second = backend.read_counters()
    if recording:
        try:
            recording.save(options.record, backend=backend.name, host=backend.host, note="cotenant-profiler once")
        except OSError as error:
            return fail(f"{options.record} cannot be written: {error.strerror}", FAILED)
    collected = collect(first, second)
    if options.json:
        print_json(_document(backend, second.time_s, settings, collected))
        return DONE
    _print_tables(collected, console())
    if not second.instances:
        print(f"no instances run on {backend.host} (read by the backend {backend.name})", file=sys.stderr)
    return DONE


def _isolation(backend: Backend) -> dict[str, IsolationSettings]:
    settings: dict[str, IsolationSettings] = {}
    for instance in backend.list_instances():
        with contextlib.suppress(BackendError):  # it ended since it was listed
            settings[instance.id] = backend.read_isolation(instance)
    return settings


def _document(
    backend: Backend, time_s: float, isolation: Mapping[str, IsolationSettings], collected: Collected
) -> dict[str, Any]:
    instances = [
        {**asdict(settings), "id": name, "pinning": None if settings.pinning is None else str(settings.pinning)}
        for name, settings in isolation.items()
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


def _print_tables(collected: Collected, console: Console) -> None:
    from rich.table import Table

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
        console.print(f"host {metric}: {_shown(values.get((None, 'host', metric)))} {unit_of(metric)}")
    for absence in collected.absences:
        console.print(f"absent: {absence.metric} of {absence.instance or 'the host'}: {absence.reason}")
    for drop in collected.drops:
        console.print(f"dropped: {drop.instance or 'the whole reading'}: {drop.reason}")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"
